import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.Session;

/**
 * Selecting QUEUE SELECTOR TOPIC URL: with Apache Qpid JMS, receives the messages of a queue, and those of a topic, that
 * a selector selects, until its input ends. Tells on its output, one event a line.
 */
public class Selecting extends Application {
    public static void main(String[] arguments) throws Exception {
        String[] anonymous = {arguments[0], "", "", arguments[3]};
        start(Application::waitForEnd);
        try (Connection connection = connect(factory(anonymous))) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer queue = session.createConsumer(session.createQueue(arguments[0]), arguments[1]);
            MessageConsumer topic = session.createConsumer(session.createTopic(arguments[2]), arguments[1]);
            connection.start();
            say("open", "text", "");
            while (!stopping) {
                tell("received", queue.receive(50));
                tell("heard", topic.receive(50));
            }
        }
    }

    private static void tell(String event, Message message) throws Exception {
        if (message != null) say(event, "number", (int) Integer.valueOf(message.getObjectProperty("n").toString()));
    }
}
