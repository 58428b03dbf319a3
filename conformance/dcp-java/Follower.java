import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.stream.Collectors;

/** Streams buckets of a cluster that changes, and shows what it came to for each line of its input, until that ends. */
final class Follower {
  private Follower() {}

  /** Streams buckets from all nodes. */
  static void follow(String seeds, List<String> buckets) {
    Map<String, View> views = new LinkedHashMap<>();
    for (String bucket : buckets) {
      View view = new View(seeds, bucket, 1 << 20);
      // It takes connections up again where it does not know whether it told the last change.
      view.mayRepeat();
      view.start();
      views.put(bucket, view);
    }
    System.out.println("round 1");
    Scanner input = new Scanner(System.in);
    while (input.hasNextLine() && !input.nextLine().equals("stop")) {
      List<String> shown = new ArrayList<>();
      views.forEach((bucket, view) -> shown.add(quoted(bucket) + ":" + show(view)));
      System.out.println("shows {" + String.join(",", shown) + "}");
    }
    System.out.println("done 1");
  }

  private static String show(View view) {
    if (view.broken() != null) {
      System.out.println("trouble " + view.broken());
    }
    String documents = view.documents().values().stream().filter(change -> !change.deleted())
        .map(change -> quoted(change.key()) + ":" + quoted(change.value())).collect(Collectors.joining(","));
    String ends = view.ends().entrySet().stream().map(end -> quoted(end.getKey()) + ":" + end.getValue())
        .collect(Collectors.joining(","));
    return "{\"documents\":{" + documents + "},\"ends\":{" + ends + "},\"rollbacks\":" + view.rollbacks().size() + "}";
  }

  private static String quoted(String text) {
    return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
  }
}
