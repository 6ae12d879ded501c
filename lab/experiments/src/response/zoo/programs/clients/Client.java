import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** The HTTP client of Java. Usage: Client http1|http2 URL PLAN SECONDS */
public class Client {
	public static void main(String[] args) throws Exception {
		List<String> plan = Files.readAllLines(Path.of(args[2]));
		HttpClient.Version version = args[0].equals("http2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1;
		HttpClient client = HttpClient.newBuilder().version(version).build();
		StringBuilder log = new StringBuilder();
		// On Linux, nanoTime reads CLOCK_MONOTONIC.
		long end = System.nanoTime() + (long) (Double.parseDouble(args[3]) * 1e9);
		for (int at = 0; ; at = (at + 1) % plan.size()) {
			String[] words = plan.get(at).split(" ");
			long think = (long) (Double.parseDouble(words[0]) * 1e6);
			if (think > 0) {
				Thread.sleep(think / 1_000_000, (int) (think % 1_000_000));
			}
			int body = Integer.parseInt(words[3]);
			URI target = URI.create(args[1] + "/?ms=" + words[1] + "&size=" + words[2] + "&pieces=" + words[4]);
			HttpRequest.Builder request = HttpRequest.newBuilder(target);
			if (body > 0) {
				request.POST(HttpRequest.BodyPublishers.ofString("b".repeat(body)));
			}
			long sent = System.nanoTime();
			if (sent > end) {
				break;
			}
			HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
			String port = response.headers().firstValue("x-port").orElseThrow();
			log.append(port).append(' ').append(sent).append(' ').append(System.nanoTime()).append('\n');
		}
		System.out.print(log);
		System.out.flush();
		System.exit(0);
	}
}
