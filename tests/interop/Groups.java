import java.util.ArrayList;
import java.util.List;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;

/**
 * Groups QUEUE USER PASSWORD URL: with Apache Qpid JMS, sends messages of two groups, of which one is ended by the group
 * sequence -1, and tells what each of two consumers had when nothing was acknowledged, one event each.
 */
public class Groups {
    private static final int PATIENCE = 60_000;

    public static void main(String[] arguments) throws Exception {
        try (Connection one = Application.factory(arguments).createConnection();
                Connection two = Application.factory(arguments).createConnection()) {
            List<MessageConsumer> consumers = new ArrayList<>();
            List<List<String>> had = List.of(new ArrayList<>(), new ArrayList<>());
            for (Connection connection : List.of(one, two)) {
                connection.start();
                Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
                consumers.add(session.createConsumer(session.createQueue(arguments[0])));
            }
            Session session = one.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(arguments[0]));
            String[] sent = {"a1", "b1", "a2", "b2", "a3", "a4"};
            for (String text : sent) {
                Message message = session.createTextMessage(text);
                message.setStringProperty("JMSXGroupID", text.substring(0, 1));
                if (text.equals("a3")) message.setIntProperty("JMSXGroupSeq", -1);
                producer.send(message);
            }
            long end = System.currentTimeMillis() + PATIENCE;
            while (had.get(0).size() + had.get(1).size() < sent.length && System.currentTimeMillis() < end) {
                for (int place = 0; place < 2; place++) {
                    Message message = consumers.get(place).receive(50);
                    if (message != null) had.get(place).add(message.getBody(String.class));
                }
            }
            for (List<String> texts : had) Application.say("had", "text", String.join(" ", texts));
        }
    }
}
