import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

/**
 * Transactions QUEUE USER PASSWORD URL: with Apache Qpid JMS, sends 0, 1, 2... to a queue, each five in a transaction,
 * moves them to QUEUE.moved in transactions, and receives them there with CLIENT_ACKNOWLEDGE, over one connection each,
 * until its input ends and all that was committed is received. Tells on its output, one event a line: of a transaction
 * that sends the first number in it, of one that moves each, and the exception if its commit failed; of a message that
 * is received its ID, too.
 */
public class Transactions {
    private static final int SIZE = 5;
    private static final Set<Integer> committed = ConcurrentHashMap.newKeySet();
    private static final Set<Integer> received = ConcurrentHashMap.newKeySet();
    private static volatile boolean allSent = false;

    public static void main(String[] arguments) throws Exception {
        String queue = arguments[0], moved = queue + ".moved";
        ConnectionFactory factory = Application.factory(arguments);
        Application.start(Application::waitForEnd);
        Thread sends = Application.start(() -> send(factory, queue));
        Thread moves = Application.start(() -> move(factory, queue, moved));
        receive(factory, moved);
        sends.join();
        moves.join();
    }

    private static boolean isDone() {
        return allSent && received.containsAll(committed);
    }

    private static void send(ConnectionFactory factory, String queue) throws Exception {
        try (Connection connection = Application.connect(factory)) {
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            for (int first = 0; !Application.stopping; first += SIZE) {
                for (int number = first; number < first + SIZE; number++)
                    producer.send(session.createTextMessage(String.valueOf(number)));
                if (commit(session, "committed", "failed", List.of(first)))
                    for (int number = first; number < first + SIZE; number++) committed.add(number);
                Thread.sleep(Application.TICK);
            }
        } finally {
            allSent = true;
        }
    }

    private static void move(ConnectionFactory factory, String from, String to) throws Exception {
        try (Connection connection = Application.connect(factory)) {
            connection.start();
            while (!isDone()) moveOn(connection, from, to);
        }
    }

    // Moves until a commit fails. A session keeps what it received while its connection was being restored, neither in a
    // transaction nor given back, until it is closed.
    private static void moveOn(Connection connection, String from, String to) throws Exception {
        try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
            MessageConsumer consumer = session.createConsumer(session.createQueue(from));
            MessageProducer producer = session.createProducer(session.createQueue(to));
            boolean isWell = true;
            while (isWell && !isDone()) {
                List<Integer> taken = new ArrayList<>();
                for (Message message; taken.size() < SIZE && (message = consumer.receive(100)) != null;) {
                    taken.add(number(message));
                    producer.send(message);
                }
                if (!taken.isEmpty()) isWell = commit(session, "moved", "not moved", taken);
            }
        }
    }

    private static void receive(ConnectionFactory factory, String queue) throws Exception {
        try (Connection connection = Application.connect(factory)) {
            connection.start();
            Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            for (int waiting = 0; !isDone();) {
                Message message = consumer.receive(100);
                if (message != null) {
                    received.add(number(message));
                    Application.say("received", number(message), message.getJMSMessageID());
                    if (++waiting < SIZE) continue;
                    message.acknowledge(); // and all before it
                    Application.say("acknowledged", "number", number(message));
                    waiting = 0;
                }
            }
        }
    }

    private static boolean commit(Session session, String done, String failed, List<Integer> numbers) {
        try {
            session.commit();
            for (int number : numbers) Application.say(done, "number", number);
            return true;
        } catch (JMSException error) { // the session is in its next transaction
            for (int number : numbers) Application.say(failed, number, error);
            return false;
        }
    }

    private static int number(Message message) throws JMSException {
        return Integer.parseInt(message.getBody(String.class));
    }
}
