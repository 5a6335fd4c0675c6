import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;
import java.util.concurrent.*;

/** Echoes what it is sent, and asks such a server, in each of the ways Java has for sockets. */
public class Echo {
    static final int TURNS = 40;

    static byte[] message(int client, int turn) {
        byte[] bytes = new byte[1 + turn * (client + 1) * 311 % 20000];
        for (int at = 0; at < bytes.length; at++) bytes[at] = (byte) (at * 7 + client * 13 + turn);
        return bytes;
    }

    static void check(int client, int turn, byte[] got) {
        if (!Arrays.equals(got, message(client, turn)))
            throw new AssertionError("client " + client + ", turn " + turn);
    }

    // ---- A thread for each connection.

    static void servePlain(int port) throws Exception {
        ServerSocket listener = new ServerSocket(port, 200, InetAddress.getLoopbackAddress());
        while (true) {
            Socket socket = listener.accept();
            Thread thread = new Thread(() -> {
                try (socket) {
                    socket.getInputStream().transferTo(socket.getOutputStream());
                } catch (IOException gone) { }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    static void askPlain(int port, int client) throws Exception {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            // With a time-out it waits in poll, and without one in read.
            if (client % 2 == 1) socket.setSoTimeout(60_000);
            for (int turn = 0; turn < TURNS; turn++) {
                byte[] bytes = message(client, turn);
                socket.getOutputStream().write(bytes);
                check(client, turn, socket.getInputStream().readNBytes(bytes.length));
            }
            socket.shutdownOutput();
            if (socket.getInputStream().read() != -1) throw new AssertionError("more than was sent");
        }
    }

    // ---- One thread and a selector.

    static void serveSelector(int port) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 200);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (Iterator<SelectionKey> keys = selector.selectedKeys().iterator(); keys.hasNext();) {
                SelectionKey key = keys.next();
                keys.remove();
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    if (channel == null) continue;
                    channel.configureBlocking(false);
                    channel.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(8192));
                    continue;
                }
                SocketChannel channel = (SocketChannel) key.channel();
                ByteBuffer buffer = (ByteBuffer) key.attachment();
                try {
                    if (key.isReadable() && channel.read(buffer) < 0) { channel.close(); continue; }
                    buffer.flip();
                    channel.write(buffer);
                    key.interestOps(buffer.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
                    buffer.compact();
                } catch (IOException gone) { channel.close(); }
            }
        }
    }

    static class Asker {
        final int client;
        int turn = -1;
        ByteBuffer out = ByteBuffer.allocate(0), in = ByteBuffer.allocate(0);
        Asker(int client) { this.client = client; }
    }

    static void askBySelector(int port, int clients) throws Exception {
        Selector selector = Selector.open();
        for (int client = 0; client < clients; client++) {
            SocketChannel channel = SocketChannel.open();
            channel.configureBlocking(false);
            channel.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
            channel.register(selector, SelectionKey.OP_CONNECT, new Asker(client));
        }
        for (int open = clients; open > 0;) {
            if (selector.select(60_000) == 0) throw new AssertionError("nothing comes any more");
            for (SelectionKey key : selector.selectedKeys()) {
                SocketChannel channel = (SocketChannel) key.channel();
                Asker asker = (Asker) key.attachment();
                if (key.isConnectable()) channel.finishConnect();
                if (key.isReadable() && channel.read(asker.in) < 0) {
                    if (asker.turn < TURNS) throw new AssertionError("it ends in turn " + asker.turn);
                    channel.close();
                    open--;
                    continue;
                }
                if (!asker.in.hasRemaining() && asker.turn < TURNS) {
                    if (asker.turn >= 0) check(asker.client, asker.turn, asker.in.array());
                    if (++asker.turn == TURNS) {
                        channel.shutdownOutput();
                        asker.in = ByteBuffer.allocate(1);
                    } else {
                        asker.out = ByteBuffer.wrap(message(asker.client, asker.turn));
                        asker.in = ByteBuffer.allocate(asker.out.remaining());
                    }
                }
                if (asker.out.hasRemaining()) channel.write(asker.out);
                key.interestOps(SelectionKey.OP_READ | (asker.out.hasRemaining() ? SelectionKey.OP_WRITE : 0));
            }
            selector.selectedKeys().clear();
        }
    }

    // ---- Channels that complete by themselves: threads of the JVM's own wait, once for each.

    static void serveAsync(int port) throws Exception {
        AsynchronousServerSocketChannel listener = AsynchronousServerSocketChannel.open()
            .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 200);
        listener.accept(null, new CompletionHandler<AsynchronousSocketChannel, Void>() {
            public void completed(AsynchronousSocketChannel channel, Void nothing) {
                listener.accept(null, this);
                echo(channel, ByteBuffer.allocateDirect(8192));
            }
            public void failed(Throwable why, Void nothing) { why.printStackTrace(); }
        });
        Thread.sleep(Long.MAX_VALUE);
    }

    static void echo(AsynchronousSocketChannel channel, ByteBuffer buffer) {
        channel.read(buffer.clear(), null, new CompletionHandler<Integer, Void>() {
            public void completed(Integer len, Void nothing) {
                if (len < 0) { close(channel); return; }
                buffer.flip();
                CompletionHandler<Integer, Void> written = new CompletionHandler<>() {
                    public void completed(Integer len, Void nothing) {
                        if (buffer.hasRemaining()) channel.write(buffer, null, this);
                        else echo(channel, buffer);
                    }
                    public void failed(Throwable why, Void nothing) { close(channel); }
                };
                channel.write(buffer, null, written);
            }
            public void failed(Throwable why, Void nothing) { close(channel); }
        });
    }

    static void close(Closeable channel) {
        try { channel.close(); } catch (IOException gone) { }
    }

    static void askAsync(int port, int client) throws Exception {
        try (AsynchronousSocketChannel channel = AsynchronousSocketChannel.open()) {
            channel.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port)).get();
            for (int turn = 0; turn < TURNS; turn++) {
                ByteBuffer out = ByteBuffer.wrap(message(client, turn));
                ByteBuffer in = ByteBuffer.allocate(out.remaining());
                while (out.hasRemaining()) channel.write(out).get(60, TimeUnit.SECONDS);
                while (in.hasRemaining() && channel.read(in).get(60, TimeUnit.SECONDS) >= 0) { }
                check(client, turn, in.array());
            }
            channel.shutdownOutput();
            if (channel.read(ByteBuffer.allocate(1)).get(60, TimeUnit.SECONDS) != -1)
                throw new AssertionError("more than was sent");
        }
    }

    // ---- A socket that another thread closes while one waits for it.

    static void closedByAnother(int port) throws Exception {
        for (int turn = 0; turn < 20; turn++) {
            Socket socket = new Socket(InetAddress.getLoopbackAddress(), port);
            if (turn % 2 == 1) socket.setSoTimeout(60_000);
            for (int at = 0; at < 4; at++) {
                socket.getOutputStream().write(message(at, 5));
                check(at, 5, socket.getInputStream().readNBytes(message(at, 5).length));
            }
            FutureTask<String> waits = new FutureTask<>(() -> {
                try { return "read " + socket.getInputStream().read(); }
                catch (SocketException why) { return why.getMessage(); }
            });
            new Thread(waits).start();
            Thread.sleep(turn * 3);
            socket.close();
            String said = waits.get(60, TimeUnit.SECONDS);
            // Before it waits it would be another word.
            if (!said.equals("Socket closed") && !said.equals("Socket is closed")) throw new AssertionError(said);
        }
        for (int turn = 0; turn < 20; turn++) {
            SocketChannel channel = SocketChannel.open(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
            for (int at = 0; at < 4; at++) {
                channel.write(ByteBuffer.wrap(message(at, 5)));
                ByteBuffer in = ByteBuffer.allocate(message(at, 5).length);
                while (in.hasRemaining()) channel.read(in);
                check(at, 5, in.array());
            }
            FutureTask<String> waits = new FutureTask<>(() -> {
                try { return "read " + channel.read(ByteBuffer.allocate(1)); }
                catch (ClosedChannelException why) { return why.getClass().getSimpleName(); }
            });
            Thread thread = new Thread(waits);
            thread.start();
            Thread.sleep(turn * 3);
            if (turn % 2 == 0) channel.close(); else thread.interrupt();
            String said = waits.get(60, TimeUnit.SECONDS);
            String wanted = turn % 2 == 0 ? "AsynchronousCloseException" : "ClosedByInterruptException";
            if (!said.equals(wanted) && !said.equals("ClosedChannelException")) throw new AssertionError(said);
        }
    }

    interface Ask { void ask(int port, int client) throws Exception; }

    static void byThreads(int port, int clients, Ask ask) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(clients);
        List<Future<?>> all = new ArrayList<>();
        for (int client = 0; client < clients; client++) {
            int number = client;
            all.add(pool.submit(() -> { ask.ask(port, number); return null; }));
        }
        for (Future<?> one : all) one.get(100, TimeUnit.SECONDS);
        pool.shutdown();
    }

    /** Asks until the other end is gone, and says what that was. */
    static void untilGone(int port) throws Exception {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            for (int turn = 0; ; turn++) {
                byte[] bytes = message(3, turn % TURNS);
                socket.getOutputStream().write(bytes);
                byte[] got = socket.getInputStream().readNBytes(bytes.length);
                if (got.length < bytes.length) { System.out.println("gone"); return; }
                check(3, turn % TURNS, got);
                if (turn == 20) System.out.println("asks");
            }
        } catch (IOException gone) { System.out.println("gone"); }
    }

    public static void main(String[] words) throws Exception {
        int port = Integer.parseInt(words[1]);
        int clients = words.length > 2 ? Integer.parseInt(words[2]) : 8;
        switch (words[0]) {
            case "serve-plain": servePlain(port); break;
            case "serve-selector": serveSelector(port); break;
            case "serve-async": serveAsync(port); break;
            case "ask-plain": byThreads(port, clients, Echo::askPlain); break;
            case "ask-selector": askBySelector(port, clients); break;
            case "ask-async": byThreads(port, clients, Echo::askAsync); break;
            case "closed-by-another": closedByAnother(port); break;
            case "until-gone": untilGone(port); return;
            default: throw new IllegalArgumentException(words[0]);
        }
        System.out.println("all came back");
        System.exit(0);
    }
}
