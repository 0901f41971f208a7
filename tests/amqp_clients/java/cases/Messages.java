package cases;

import static cases.Env.WAIT_MS;
import static cases.Env.check;
import static cases.Env.eq;
import static cases.Env.raises;
import static cases.Env.session;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageFormatException;
import jakarta.jms.MessageNotWriteableException;
import jakarta.jms.MessageEOFException;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** The kinds of bodies, and properties. */
final class Messages {
    private Messages() {}

    /** What arrives of a message on a queue of its own. */
    private static Message through(Env env, Session session, Message message) throws Exception {
        Queue queue = env.queue();
        session.createProducer(queue).send(message);
        Message found = session.createConsumer(queue).receive(WAIT_MS);
        check(found != null, "no message has come");
        return found;
    }

    @Case
    static void texts(Env env) throws Exception {
        Session session = session(env.connect());
        for (String text : new String[] {"", "plain", "Grüße, 世界 \uD83D\uDE80", "zero \u0000 inside", " \n\t "}) {
            eq(text, ((TextMessage) through(env, session, session.createTextMessage(text))).getText());
        }
    }

    @Case
    static void textWithoutBody(Env env) throws Exception {
        Session session = session(env.connect());
        TextMessage found = (TextMessage) through(env, session, session.createTextMessage());
        eq(null, found.getText());
        eq(null, found.getBody(String.class));
    }

    @Case
    static void bytesOfEachType(Env env) throws Exception {
        Session session = session(env.connect());
        BytesMessage message = session.createBytesMessage();
        message.writeBoolean(true);
        message.writeByte((byte) -7);
        message.writeShort((short) -300);
        message.writeChar('ß');
        message.writeInt(Integer.MIN_VALUE);
        message.writeLong(Long.MAX_VALUE);
        message.writeFloat(1.5f);
        message.writeDouble(-Math.PI);
        message.writeUTF("Ωmega");
        message.writeBytes(new byte[] {1, 2, 3, 4}, 1, 2);
        BytesMessage found = (BytesMessage) through(env, session, message);
        eq(1L + 1 + 2 + 2 + 4 + 8 + 4 + 8 + 8 + 2, found.getBodyLength());
        eq(true, found.readBoolean());
        eq((byte) -7, found.readByte());
        eq((short) -300, found.readShort());
        eq('ß', found.readChar());
        eq(Integer.MIN_VALUE, found.readInt());
        eq(Long.MAX_VALUE, found.readLong());
        eq(1.5f, found.readFloat());
        eq(-Math.PI, found.readDouble());
        eq("Ωmega", found.readUTF());
        byte[] rest = new byte[5];
        eq(2, found.readBytes(rest));
        eq(-1, found.readBytes(rest));
        raises(MessageEOFException.class, found::readByte);
        found.reset();
        eq(true, found.readBoolean());
    }

    @Case
    static void emptyBytes(Env env) throws Exception {
        Session session = session(env.connect());
        BytesMessage found = (BytesMessage) through(env, session, session.createBytesMessage());
        eq(0L, found.getBodyLength());
    }

    @Case
    static void mapOfEachType(Env env) throws Exception {
        Session session = session(env.connect());
        MapMessage message = session.createMapMessage();
        message.setBoolean("boolean", false);
        message.setByte("byte", Byte.MAX_VALUE);
        message.setShort("short", Short.MIN_VALUE);
        message.setChar("char", '\u20AC');
        message.setInt("int", 42);
        message.setLong("long", -42L);
        message.setFloat("float", Float.MIN_VALUE);
        message.setDouble("double", Double.MAX_VALUE);
        message.setString("string", "text");
        message.setString("null", null);
        message.setBytes("bytes", new byte[] {0, -1, 127});
        MapMessage found = (MapMessage) through(env, session, message);
        eq(11, Collections.list(found.getMapNames()).size());
        eq(false, found.getBoolean("boolean"));
        eq(Byte.MAX_VALUE, found.getByte("byte"));
        eq(Short.MIN_VALUE, found.getShort("short"));
        eq('\u20AC', found.getChar("char"));
        eq(42, found.getInt("int"));
        eq(42L, found.getLong("int"));
        eq(-42L, found.getLong("long"));
        eq(Float.MIN_VALUE, found.getFloat("float"));
        eq(Double.MAX_VALUE, found.getDouble("double"));
        eq("text", found.getString("string"));
        eq(null, found.getString("null"));
        check(found.itemExists("null") && !found.itemExists("nothing"), "itemExists");
        eq(new byte[] {0, -1, 127}, found.getBytes("bytes"));
        eq("-32768", found.getString("short"));
        raises(MessageFormatException.class, () -> found.getInt("long"));
    }

    @Case
    static void streamOfEachType(Env env) throws Exception {
        Session session = session(env.connect());
        StreamMessage message = session.createStreamMessage();
        message.writeBoolean(true);
        message.writeByte((byte) 1);
        message.writeShort((short) 2);
        message.writeChar('c');
        message.writeInt(3);
        message.writeLong(4L);
        message.writeFloat(5.5f);
        message.writeDouble(6.25);
        message.writeString("seven");
        message.writeObject(null);
        message.writeBytes(new byte[] {8, 9});
        StreamMessage found = (StreamMessage) through(env, session, message);
        eq(true, found.readBoolean());
        eq((byte) 1, found.readByte());
        eq((short) 2, found.readShort());
        eq('c', found.readChar());
        eq(3, found.readInt());
        eq(4L, found.readLong());
        eq(5.5f, found.readFloat());
        eq(6.25, found.readDouble());
        eq("seven", found.readString());
        eq(null, found.readObject());
        eq(new byte[] {8, 9}, found.readObject());
        raises(MessageEOFException.class, found::readString);
    }

    @Case
    static void objects(Env env) throws Exception {
        Session session = session(env.connect("jms.deserializationPolicy.allowList=java"));
        var value = new HashMap<String, List<Integer>>(Map.of("numbers", new ArrayList<>(List.of(1, 2, 3))));
        ObjectMessage found = (ObjectMessage) through(env, session, session.createObjectMessage(value));
        eq(value, found.getObject());
        eq(value, found.getBody(Map.class));
        eq(null, ((ObjectMessage) through(env, session, session.createObjectMessage())).getObject());
    }

    @Case
    static void messageWithoutBody(Env env) throws Exception {
        Session session = session(env.connect());
        Message message = session.createMessage();
        message.setStringProperty("only", "properties");
        Message found = through(env, session, message);
        check(!(found instanceof TextMessage) && !(found instanceof BytesMessage) && !(found instanceof MapMessage),
                "it is " + found.getClass());
        eq("properties", found.getStringProperty("only"));
        check(found.isBodyAssignableTo(Object.class), "no body can be assigned to anything");
    }

    @Case
    static void bodiesAsKinds(Env env) throws Exception {
        Session session = session(env.connect());
        TextMessage text = (TextMessage) through(env, session, session.createTextMessage("body"));
        eq("body", text.getBody(String.class));
        check(text.isBodyAssignableTo(CharSequence.class), "CharSequence");
        check(!text.isBodyAssignableTo(byte[].class), "byte[]");
        raises(MessageFormatException.class, () -> text.getBody(Map.class));
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {5, 6});
        BytesMessage read = (BytesMessage) through(env, session, bytes);
        eq(new byte[] {5, 6}, read.getBody(byte[].class));
        MapMessage map = session.createMapMessage();
        map.setInt("one", 1);
        eq(Map.of("one", 1), through(env, session, map).getBody(Map.class));
        StreamMessage stream = session.createStreamMessage();
        stream.writeInt(1);
        Message list = through(env, session, stream);
        raises(MessageFormatException.class, () -> list.getBody(List.class));
    }

    @Case
    static void propertiesOfEachType(Env env) throws Exception {
        Session session = session(env.connect());
        Message message = session.createMessage();
        message.setBooleanProperty("b", true);
        message.setByteProperty("by", (byte) 1);
        message.setShortProperty("s", (short) 2);
        message.setIntProperty("i", 3);
        message.setLongProperty("l", 4L);
        message.setFloatProperty("f", 0.5f);
        message.setDoubleProperty("d", 0.25);
        message.setStringProperty("str", "Größe");
        message.setObjectProperty("obj", 77L);
        message.setStringProperty("nul", null);
        Message found = through(env, session, message);
        eq(Boolean.TRUE, found.getObjectProperty("b"));
        eq((byte) 1, found.getObjectProperty("by"));
        eq((short) 2, found.getObjectProperty("s"));
        eq(3, found.getObjectProperty("i"));
        eq(4L, found.getObjectProperty("l"));
        eq(0.5f, found.getObjectProperty("f"));
        eq(0.25, found.getObjectProperty("d"));
        eq("Größe", found.getObjectProperty("str"));
        eq(77L, found.getLongProperty("obj"));
        eq(null, found.getObjectProperty("nul"));
        eq(1L, found.getLongProperty("by"));
        eq("3", found.getStringProperty("i"));
        raises(MessageFormatException.class, () -> found.getIntProperty("l"));
        raises(NumberFormatException.class, () -> found.getIntProperty("absent"));
        eq(false, found.getBooleanProperty("absent"));
        check(found.propertyExists("str") && !found.propertyExists("absent"), "propertyExists");
    }

    @Case
    static void manyProperties(Env env) throws Exception {
        Session session = session(env.connect());
        Message message = session.createTextMessage("many");
        for (int number = 0; number < 400; number++) {
            message.setStringProperty("p" + number, "v".repeat(number % 50));
        }
        Message found = through(env, session, message);
        for (int number = 0; number < 400; number++) {
            eq("v".repeat(number % 50), found.getStringProperty("p" + number));
        }
    }

    @Case
    static void whatWasReceivedIsReadOnly(Env env) throws Exception {
        Session session = session(env.connect());
        TextMessage message = session.createTextMessage("before");
        message.setStringProperty("p", "v");
        TextMessage found = (TextMessage) through(env, session, message);
        raises(MessageNotWriteableException.class, () -> found.setText("after"));
        raises(MessageNotWriteableException.class, () -> found.setStringProperty("p", "w"));
        found.clearBody();
        found.setText("after");
        eq("v", found.getStringProperty("p"));
        found.clearProperties();
        check(!found.propertyExists("p"), "properties are cleared");
        eq("after", ((TextMessage) through(env, session, found)).getText());
    }

    @Case
    static void whatWasReceivedIsForwarded(Env env) throws Exception {
        Session session = session(env.connect());
        TextMessage message = session.createTextMessage("on");
        message.setIntProperty("n", 5);
        message.setJMSCorrelationID("c");
        message.setJMSType("kind");
        TextMessage once = (TextMessage) through(env, session, message);
        String first = once.getJMSMessageID();
        TextMessage twice = (TextMessage) through(env, session, once);
        eq("on", twice.getText());
        eq(5, twice.getIntProperty("n"));
        eq("c", twice.getJMSCorrelationID());
        eq("kind", twice.getJMSType());
        check(!first.equals(twice.getJMSMessageID()), "each send gives an id");
        eq(1, twice.getIntProperty("JMSXDeliveryCount"));
    }

    @Case
    static void aMessageIsSentTwiceAndChanged(Env env) throws Exception {
        Session session = session(env.connect());
        Queue queue = env.queue();
        TextMessage message = session.createTextMessage("one");
        var producer = session.createProducer(queue);
        producer.send(message);
        message.setText("two");
        producer.send(message);
        MessageConsumer consumer = session.createConsumer(queue);
        Env.texts(consumer, "one", "two");
    }

    @Case
    static void largeBytes(Env env) throws Exception {
        Session session = session(env.connect());
        byte[] body = new byte[5 << 20];
        new Random(1).nextBytes(body);
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        BytesMessage found = (BytesMessage) through(env, session, message);
        eq((long) body.length, found.getBodyLength());
        check(java.util.Arrays.equals(body, found.getBody(byte[].class)), "the bytes differ");
    }

    @Case
    static void largeTexts(Env env) throws Exception {
        Connection connection = env.connect();
        Session session = session(connection);
        Queue queue = env.queue();
        var producer = session.createProducer(queue);
        for (int number = 0; number < 4; number++) {
            producer.send(session.createTextMessage(String.valueOf((char) ('a' + number)).repeat(700_000)));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int number = 0; number < 4; number++) {
            eq(String.valueOf((char) ('a' + number)).repeat(700_000), Env.text(consumer));
        }
    }

    @Case
    static void largeMapInATransaction(Env env) throws Exception {
        Session session = Env.transacted(env.connect());
        Queue queue = env.queue();
        MapMessage message = session.createMapMessage();
        for (int number = 0; number < 20; number++) {
            message.setBytes("part" + number, new byte[50_000]);
        }
        session.createProducer(queue).send(message);
        session.commit();
        MapMessage found = (MapMessage) session.createConsumer(queue).receive(WAIT_MS);
        eq(50_000, found.getBytes("part19").length);
        session.rollback();
    }
}
