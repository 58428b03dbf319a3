import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Random;

/**
 * Stands before a node and cuts connections in the middle of what the node sends. It takes the
 * frames apart, so that clients find the proxy's port in every cluster map and come back to it.
 */
final class Proxy implements AutoCloseable {
  private static final int HEADER_BYTES = 24;

  private final ServerSocket listener;
  private final int node;
  private final Random random;
  private int cuts;
  private int frames;

  Proxy(int node, long seed) throws IOException {
    listener = new ServerSocket(0, 64, InetAddress.getLoopbackAddress());
    this.node = node;
    random = new Random(seed);
    daemon(this::accept);
  }

  int port() {
    return listener.getLocalPort();
  }

  /** Ends the next connections, each after up to so many frames of streams. */
  synchronized void cut(int connections, int frames) {
    this.cuts = connections;
    this.frames = frames;
  }

  synchronized int cutsLeft() {
    return cuts;
  }

  @Override
  public void close() throws IOException {
    listener.close();
  }

  private static void daemon(Runnable body) {
    Thread thread = new Thread(body);
    thread.setDaemon(true);
    thread.start();
  }

  private void accept() {
    try {
      while (true) {
        Socket client = listener.accept();
        daemon(() -> serve(client));
      }
    } catch (IOException closed) {
      // The suite is done with the proxy.
    }
  }

  private void serve(Socket client) {
    try (client; Socket server = new Socket(InetAddress.getLoopbackAddress(), node)) {
      client.setTcpNoDelay(true);
      server.setTcpNoDelay(true);
      daemon(() -> {
        try (server) {
          client.getInputStream().transferTo(server.getOutputStream());
        } catch (IOException ended) {
          // Closing the server's side also wakes the reader below.
        }
      });
      forward(server, client);
    } catch (IOException ended) {
      // Either side went away.
    }
  }

  private void forward(Socket server, Socket client) throws IOException {
    DataInputStream in = new DataInputStream(new BufferedInputStream(server.getInputStream(), 1 << 16));
    OutputStream out = new BufferedOutputStream(client.getOutputStream(), 1 << 16);
    int left = -1;
    while (true) {
      byte[] header = new byte[HEADER_BYTES];
      in.readFully(header);
      byte[] frame = new byte[HEADER_BYTES + ByteBuffer.wrap(header).getInt(8)];
      System.arraycopy(header, 0, frame, 0, HEADER_BYTES);
      in.readFully(frame, HEADER_BYTES, frame.length - HEADER_BYTES);
      frame = withOwnPort(frame);
      if (isOfStream(frame)) {
        left = left < 0 ? share() : left;
        if (--left == 0) {
          breakOff(out, client, frame);
          return;
        }
      }
      out.write(frame);
      if (in.available() < HEADER_BYTES) {
        out.flush();
      }
    }
  }

  /** How many frames of streams a connection may pass; 0 for any number. */
  private synchronized int share() {
    return cuts == 0 ? 0 : 1 + random.nextInt(frames);
  }

  /** Passes a part of the frame, often none or all of it, and ends the connection. */
  private synchronized void breakOff(OutputStream out, Socket client, byte[] frame) throws IOException {
    cuts--;
    int part = random.nextInt(2 * frame.length) - frame.length / 2;
    out.write(frame, 0, Math.max(0, Math.min(part, frame.length)));
    out.flush();
    if (random.nextBoolean()) {
      client.setSoLinger(true, 0);
    }
  }

  /** Tells what a stream is made of from answers, noops and controls. */
  private static boolean isOfStream(byte[] frame) {
    int opcode = frame[1] & 0xff;
    return (frame[0] & 0xff) == 0x80
        && (opcode >= 0x56 && opcode <= 0x59 || opcode == 0x5f || opcode == 0x64);
  }

  /** Free ports have five digits all, so no length changes. */
  private byte[] withOwnPort(byte[] frame) {
    if ((frame[1] & 0xff) != 0xb5 && (frame[0] & 0xff) != 0x82) {
      return frame;
    }
    String own = Integer.toString(port());
    String text = new String(frame, HEADER_BYTES, frame.length - HEADER_BYTES, StandardCharsets.ISO_8859_1);
    byte[] body = text.replace(Integer.toString(node), own).getBytes(StandardCharsets.ISO_8859_1);
    if (body.length != frame.length - HEADER_BYTES) {
      throw new AssertionError("the ports differ in length");
    }
    System.arraycopy(body, 0, frame, HEADER_BYTES, body.length);
    return frame;
  }
}
