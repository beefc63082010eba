import java.util.ArrayList;
import java.util.List;
import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TemporaryQueue;
import javax.jms.TemporaryTopic;
import javax.jms.Topic;

/**
 * Subscriptions TOPIC USER PASSWORD URL: with Apache Qpid JMS, subscribes to a topic in each way that JMS has, sends to
 * it, and tells what each subscription got, one event a line: the numbers of its messages, and how many each of its
 * consumers got.
 */
public class Subscriptions {
    private static final int PATIENCE = 10_000;
    private static int sent = 0;

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = Application.factory(arguments);
        try (Connection owner = factory.createConnection();
                Connection one = factory.createConnection();
                Connection two = factory.createConnection()) {
            owner.setClientID("owner");
            for (Connection connection : List.of(owner, one, two)) connection.start();
            Session session = owner.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session first = one.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Session second = two.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Topic topic = session.createTopic(arguments[0]);
            MessageProducer producer = session.createProducer(topic);

            MessageConsumer alone = session.createDurableSubscriber(topic, "alone");
            MessageConsumer[] shared = {first.createSharedConsumer(topic, "sub"), second.createSharedConsumer(topic, "sub")};
            MessageConsumer[] own = {session.createSharedConsumer(topic, "sub"), session.createSharedConsumer(topic, "sub")};
            MessageConsumer[] durable = {
                first.createSharedDurableConsumer(topic, "sub"), second.createSharedDurableConsumer(topic, "sub")};
            send(session, producer);
            tell("shared", 4, shared);
            tell("shared of one client", 4, own);
            tell("shared durable", 4, durable);
            refuse("unsubscribe while it is used", () -> session.unsubscribe("alone"));
            for (MessageConsumer[] consumers : List.of(shared, own, durable))
                for (MessageConsumer consumer : consumers) consumer.close();
            alone.close();

            send(session, producer);
            MessageConsumer again = first.createSharedDurableConsumer(topic, "sub");
            tell("shared durable, later", 4, again);
            refuse("unsubscribe while another connection uses it", () -> second.unsubscribe("sub"));
            again.close();
            first.unsubscribe("sub");
            alone = session.createDurableSubscriber(topic, "alone");
            tell("alone", 8, alone);
            alone.close();
            session.unsubscribe("alone");
            refuse("unsubscribe from nothing", () -> session.unsubscribe("alone"));
            refuse("unsubscribe from nothing shared", () -> second.unsubscribe("sub"));
            leaveOutOwn(session, first, topic);
            lastAsLongAsTheConnection(session, first);
        }
    }

    /** What the connection of the first session sends is not for its consumers. */
    private static void leaveOutOwn(Session session, Session other, Topic topic) throws JMSException {
        MessageConsumer[] noLocal = {
            session.createConsumer(topic, null, true), session.createDurableSubscriber(topic, "foreign", null, true)};
        send(session, session.createProducer(topic));
        send(other, other.createProducer(topic));
        tell("no-local", 8, noLocal);
        for (MessageConsumer consumer : noLocal) consumer.close();
        session.unsubscribe("foreign");
    }

    private static void lastAsLongAsTheConnection(Session session, Session other) throws JMSException {
        TemporaryTopic topic = session.createTemporaryTopic();
        MessageConsumer[] subscribed = {session.createConsumer(topic), session.createConsumer(topic)};
        send(other, other.createProducer(topic));
        tell("temporary topic", 8, subscribed);
        for (MessageConsumer consumer : subscribed) consumer.close();
        topic.delete();
        refuse("temporary topic that is gone", () -> other.createProducer(topic));
        TemporaryQueue queue = session.createTemporaryQueue();
        send(other, other.createProducer(queue));
        tell("temporary queue", 4, session.createConsumer(queue));
        refuse("no-local of a queue", () -> session.createConsumer(queue, null, true));
        session.createTemporaryTopic(); // ends with the connection
    }

    private static void send(Session session, MessageProducer producer) throws JMSException {
        for (int count = 0; count < 4; count++) producer.send(session.createTextMessage(String.valueOf(++sent)));
    }

    /** Receives so many messages, and tells which, and how many each consumer got. */
    private static void tell(String kind, int expected, MessageConsumer... consumers) throws JMSException {
        List<Integer> numbers = new ArrayList<>(), counts = new ArrayList<>();
        for (MessageConsumer consumer : consumers) counts.add(0);
        long end = System.currentTimeMillis() + PATIENCE;
        while (numbers.size() < expected && System.currentTimeMillis() < end) {
            for (int place = 0; place < consumers.length; place++) {
                Message message = consumers[place].receive(50);
                if (message == null) continue;
                numbers.add(Integer.parseInt(message.getBody(String.class)));
                counts.set(place, counts.get(place) + 1);
            }
        }
        numbers.sort(null);
        Application.say(kind, "text", numbers + " " + counts);
    }

    interface Work {
        void run() throws JMSException;
    }

    private static void refuse(String kind, Work work) {
        try {
            work.run();
            Application.say(kind, "text", "done");
        } catch (JMSException error) {
            Application.say(kind, "text", error.getClass().getSimpleName());
        }
    }
}
