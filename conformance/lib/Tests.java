import java.util.LinkedHashMap;
import java.util.Map;

/** The tests of a suite: they run one after the other, each prints a line, and the last line sums them up. */
final class Tests {
  /** Something that must hold. */
  interface Test {
    void run() throws Exception;
  }

  /** Connects the clients of a suite. */
  interface Start {
    Tests start() throws Exception;
  }

  private final Map<String, Test> tests = new LinkedHashMap<>();
  private final Test end;

  /** After the tests {@code end} runs; it may fail, too. */
  Tests(Test end) {
    this.end = end;
  }

  void put(String name, Test test) {
    tests.put(name, test);
  }

  /** Runs the tests whose names contain the first argument, and ends the process. */
  static void main(String suite, String[] arguments, Start start) {
    int failed = 1;
    try {
      failed = start.start().runAll(suite, arguments.length > 0 ? arguments[0] : "");
    } catch (Throwable error) {
      System.out.println("FAIL " + suite + ": " + error);
      System.out.println("0 passed, 1 failed");
    }
    // Clients keep threads of their own; the verdict stands, so do not wait for them.
    Runtime.getRuntime().halt(failed == 0 ? 0 : 1);
  }

  private int runAll(String suite, String filter) {
    int passed = 0;
    int failed = 0;
    for (Map.Entry<String, Test> test : tests.entrySet()) {
      if (!test.getKey().contains(filter)) {
        continue;
      }
      long started = System.nanoTime();
      try {
        test.getValue().run();
        passed++;
        long took = (System.nanoTime() - started) / 1_000_000;
        System.out.println("ok   " + suite + ": " + test.getKey() + " (" + took + " ms)");
      } catch (Throwable error) {
        failed++;
        System.out.println("FAIL " + suite + ": " + test.getKey() + ": " + error);
      }
    }
    if (passed + failed == 0) {
      failed = 1;
      System.out.println("FAIL " + suite + ": no test matches `" + filter + "`");
    }
    try {
      end.run();
    } catch (Throwable error) {
      failed++;
      System.out.println("FAIL " + suite + ": at the end: " + error);
    }
    System.out.println(passed + " passed, " + failed + " failed");
    return failed;
  }
}
