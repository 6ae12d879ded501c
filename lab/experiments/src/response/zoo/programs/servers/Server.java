import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;

/** The HTTP server of Java, which takes as long for an answer as its request says. Usage: Server PORT */
public class Server {
	/** Between the pieces of an answer. */
	private static final long GAP_MS = 2;

	public static void main(String[] args) throws IOException {
		HttpServer server = HttpServer.create(new InetSocketAddress("0.0.0.0", Integer.parseInt(args[0])), 0);
		server.createContext("/", Server::serve);
		server.setExecutor(Executors.newCachedThreadPool());
		server.start();
	}

	private static void serve(HttpExchange exchange) throws IOException {
		exchange.getRequestBody().readAllBytes();
		Map<String, Double> query = new HashMap<>();
		for (String pair : exchange.getRequestURI().getQuery().split("&")) {
			String[] sides = pair.split("=");
			query.put(sides[0], Double.parseDouble(sides[1]));
		}
		int size = query.get("size").intValue();
		int pieces = query.get("pieces").intValue();
		try (OutputStream out = exchange.getResponseBody()) {
			Thread.sleep(query.get("ms").longValue(), (int) (query.get("ms") * 1e6 % 1e6));
			exchange.getResponseHeaders().set("X-Port", String.valueOf(exchange.getRemoteAddress().getPort()));
			exchange.sendResponseHeaders(200, size);
			for (int piece = 0; piece < pieces; piece++) {
				if (piece > 0) {
					out.flush();
					Thread.sleep(GAP_MS);
				}
				out.write(new byte[size / pieces + (piece == pieces - 1 ? size % pieces : 0)]);
			}
		} catch (InterruptedException error) {
			Thread.currentThread().interrupt();
		}
	}
}
