import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

/**
 * Delays QUEUE USER PASSWORD URL: with Apache Qpid JMS, sends two messages to a queue, the first one with a delivery
 * delay, and tells in which order they came and whether the first one came too early.
 */
public class Delays {
    private static final int DELAY = 500;
    private static final int PATIENCE = 60_000;

    public static void main(String[] arguments) throws Exception {
        try (Connection connection = Application.factory(arguments).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(arguments[0]));
            MessageConsumer consumer = session.createConsumer(session.createQueue(arguments[0]));
            long sent = System.nanoTime();
            producer.setDeliveryDelay(DELAY);
            producer.send(session.createTextMessage("late"));
            producer.setDeliveryDelay(0);
            producer.send(session.createTextMessage("now"));
            String order = "";
            for (int number = 0; number < 2; number++) {
                Message message = consumer.receive(PATIENCE);
                order += (message == null ? "nothing" : message.getBody(String.class)) + " ";
            }
            boolean early = System.nanoTime() - sent < DELAY * 1_000_000L;
            Application.say("delays", "text", order + (early ? "too early" : "in time"));
        }
    }
}
