import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.qpid.jms.JmsConnectionFactory;

/**
 * Application QUEUE USER PASSWORD URL: with Apache Qpid JMS, sends 1, 2, 3... to a queue and receives them, over one
 * connection each, until its input ends and all that was accepted is received. Tells on its output, one event a line.
 * Without a USER it is anonymous.
 */
public class Application {
    static final int TICK = 5;
    private static final Set<Integer> accepted = ConcurrentHashMap.newKeySet();
    private static final Set<Integer> received = ConcurrentHashMap.newKeySet();
    static volatile boolean stopping = false;
    private static volatile boolean allSent = false;

    public static void main(String[] arguments) throws Exception {
        String queue = arguments[0];
        ConnectionFactory factory = factory(arguments);
        start(Application::waitForEnd);
        Thread sends = start(() -> send(factory, queue));
        receive(factory, queue);
        sends.join();
    }

    private static void send(ConnectionFactory factory, String queue) throws Exception {
        try (Connection connection = connect(factory)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            for (int number = 1; !stopping; number++) {
                producer.send(session.createTextMessage(String.valueOf(number))); // returns when it is accepted
                accepted.add(number);
                say("accepted", "number", number);
                Thread.sleep(TICK);
            }
        } finally {
            allSent = true;
        }
    }

    private static void receive(ConnectionFactory factory, String queue) throws Exception {
        try (Connection connection = connect(factory)) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            while (!(allSent && received.containsAll(accepted))) {
                Message message = consumer.receive(100);
                if (message == null) continue;
                int number = Integer.parseInt(message.getBody(String.class));
                received.add(number);
                say("received", "number", number);
            }
        }
    }

    static ConnectionFactory factory(String[] arguments) {
        String user = arguments[1], password = arguments[2], url = arguments[3];
        return user.isEmpty() ? new JmsConnectionFactory(url) : new JmsConnectionFactory(user, password, url);
    }

    static Connection connect(ConnectionFactory factory) throws JMSException {
        Connection connection = factory.createConnection();
        connection.setExceptionListener(error -> say("error", "text", error));
        return connection;
    }

    static void waitForEnd() throws Exception {
        while (System.in.read() >= 0) {}
        stopping = true;
    }

    interface Work {
        void run() throws Exception;
    }

    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                say("error", "text", error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void say(String event, String name, Object value) {
        print(pair("event", event) + ", " + pair(name, value));
    }

    static void say(String event, int number, Object text) {
        print(pair("event", event) + ", " + pair("number", number) + ", " + pair("text", text));
    }

    private static synchronized void print(String pairs) {
        System.out.println("{" + pairs + "}");
    }

    private static String pair(String name, Object value) {
        String text = value instanceof Integer
            ? value.toString()
            : '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
        return '"' + name + "\": " + text;
    }
}
