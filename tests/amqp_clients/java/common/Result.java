package common;

/** One line of a program's answer: what a case has come to, in JSON, as the programs of other languages write it. */
public final class Result {
    private Result() {}

    public static synchronized void print(String name, Throwable failure, double seconds) {
        System.out.println("{\"case\": " + quoted(name)
                + ", \"result\": \"" + (failure == null ? "passed" : "failed") + "\""
                + ", \"seconds\": " + Math.round(seconds * 1000) / 1000.0
                + ", \"why\": " + (failure == null ? "null" : quoted(described(failure))) + "}");
        System.out.flush();
    }

    public static String described(Throwable failure) {
        var text = new StringBuilder(failure.toString());
        for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
            text.append(" <- ").append(cause);
        }
        for (StackTraceElement frame : failure.getStackTrace()) {
            if (frame.getClassName().startsWith("cases.") || frame.getClassName().contains("jtests")) {
                text.append(" at ").append(frame.getFileName()).append(':').append(frame.getLineNumber());
            }
        }
        return text.length() > 2000 ? text.substring(0, 2000) : text.toString();
    }

    private static String quoted(String text) {
        var made = new StringBuilder("\"");
        for (char sign : text.toCharArray()) {
            if (sign == '"' || sign == '\\') {
                made.append('\\').append(sign);
            } else if (sign < ' ') {
                made.append(String.format("\\u%04x", (int) sign));
            } else {
                made.append(sign);
            }
        }
        return made.append('"').toString();
    }
}
