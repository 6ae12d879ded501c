import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;

/** Sends a file to itself, and says what came. */
public class Echo {
	public static void main(String[] arguments) throws Exception {
		byte[] data = Files.readAllBytes(Path.of(arguments[0]));
		ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
		Thread server = new Thread(() -> {
			try (Socket socket = listener.accept()) {
				socket.getInputStream().transferTo(socket.getOutputStream());
			} catch (Exception error) {
				error.printStackTrace();
			}
		});
		server.start();
		try (Socket client = new Socket(listener.getInetAddress(), listener.getLocalPort())) {
			Thread writer = new Thread(() -> {
				try {
					client.getOutputStream().write(data);
					client.shutdownOutput();
				} catch (Exception error) {
					error.printStackTrace();
				}
			});
			writer.start();
			MessageDigest seen = MessageDigest.getInstance("SHA-256");
			InputStream in = client.getInputStream();
			byte[] part = new byte[65536];
			for (int length; (length = in.read(part)) > 0;)
				seen.update(part, 0, length);
			writer.join();
			System.out.println("java " + HexFormat.of().formatHex(seen.digest()));
		}
		server.join();
	}
}
