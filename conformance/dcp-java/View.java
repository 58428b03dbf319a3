import com.couchbase.client.dcp.Client;
import com.couchbase.client.dcp.StreamFrom;
import com.couchbase.client.dcp.StreamTo;
import com.couchbase.client.dcp.core.time.Delay;
import com.couchbase.client.dcp.highlevel.DatabaseChangeListener;
import com.couchbase.client.dcp.highlevel.Deletion;
import com.couchbase.client.dcp.highlevel.DocumentChange;
import com.couchbase.client.dcp.highlevel.FailoverLog;
import com.couchbase.client.dcp.highlevel.FlowControlMode;
import com.couchbase.client.dcp.highlevel.Mutation;
import com.couchbase.client.dcp.highlevel.Rollback;
import com.couchbase.client.dcp.highlevel.SnapshotDetails;
import com.couchbase.client.dcp.highlevel.StreamEnd;
import com.couchbase.client.dcp.highlevel.StreamFailure;
import com.couchbase.client.dcp.state.PartitionState;
import com.couchbase.client.dcp.state.StateFormat;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What a DCP client was told, as documents; the client itself resumes and rolls back. */
final class View implements DatabaseChangeListener, AutoCloseable {
  static final int VBUCKETS = 1024;

  /** One change of a document as a stream told it. */
  record Change(String key, long seqno, long cas, String value) {
    boolean deleted() {
      return value == null;
    }
  }

  private final Client client;
  private final List<List<Change>> history = new ArrayList<>();
  private final long[] reached = new long[VBUCKETS];
  private final Map<Integer, Long> rollbacks = new HashMap<>();
  private final Map<String, Integer> ends = new HashMap<>();
  private String broken;
  private volatile boolean mayRepeat;
  private int opened;
  private CountDownLatch gate;
  private long gateAfter;

  View(int port, int bufferBytes) {
    this("127.0.0.1:" + port, "default", bufferBytes);
  }

  /** Seeds are separated by commas. */
  View(String seeds, String bucket, int bufferBytes) {
    for (int vbucket = 0; vbucket < VBUCKETS; vbucket++) {
      history.add(new ArrayList<>());
    }
    Client.Builder builder = Client.builder()
        .seedNodes(seeds.split(","))
        .bucket(bucket)
        .credentials("Administrator", "password")
        .userAgent("settee-conformance", "0")
        .bootstrapTimeout(Duration.ofSeconds(30))
        .dcpChannelsReconnectDelay(Delay.fixed(20, TimeUnit.MILLISECONDS))
        .dcpChannelsReconnectMaxAttempts(Integer.MAX_VALUE)
        .collectionsAware(true)
        .flowControl(bufferBytes);
    client = builder.build();
    client.listener(this, FlowControlMode.AUTOMATIC);
  }

  /** Streams everything from the beginning. */
  void start() {
    client.connect().block(Duration.ofSeconds(40));
    client.initializeState(StreamFrom.BEGINNING, StreamTo.INFINITY).block(Duration.ofSeconds(40));
    client.startStreaming().block(Duration.ofSeconds(40));
  }

  /** Streams on from what another view saved. */
  void start(View before, byte[] state) {
    for (int vbucket = 0; vbucket < VBUCKETS; vbucket++) {
      history.get(vbucket).addAll(before.history.get(vbucket));
      reached[vbucket] = before.reached[vbucket];
    }
    client.connect().block(Duration.ofSeconds(40));
    client.recoverState(StateFormat.JSON, state).block(Duration.ofSeconds(40));
    client.startStreaming().block(Duration.ofSeconds(40));
  }

  byte[] save() {
    return client.sessionState().export(StateFormat.JSON);
  }

  /** Pretends that a vBucket's history was another one. */
  void corrupt(int vbucket) {
    PartitionState state = client.sessionState().get(vbucket);
    state.setFailoverLog(List.of(new com.couchbase.client.dcp.state.FailoverLogEntry(0, 0x5e77ee)));
    client.sessionState().set(vbucket, state);
  }

  Client client() {
    return client;
  }

  /** From the change with this number on, the listener does not return until the gate opens. */
  synchronized void blockAfter(long changes, CountDownLatch gate) {
    this.gate = gate;
    this.gateAfter = changes;
  }

  /**
   * When its connection breaks, the client may ask again from before a change that it is about to
   * tell, and so tell it twice, the same.
   */
  void mayRepeat() {
    mayRepeat = true;
  }

  synchronized boolean blocked() {
    return gate != null && gateAfter <= 0;
  }

  synchronized String broken() {
    return broken;
  }

  synchronized int opened() {
    return opened;
  }

  synchronized Map<Integer, Long> rollbacks() {
    return new HashMap<>(rollbacks);
  }

  /** Why streams ended, and how often. */
  synchronized Map<String, Integer> ends() {
    return new HashMap<>(ends);
  }

  synchronized long reached(int vbucket) {
    return reached[vbucket];
  }

  /** The last change of every key. */
  synchronized Map<String, Change> documents() {
    Map<String, Change> all = new HashMap<>();
    for (List<Change> changes : history) {
      for (Change change : changes) {
        all.put(change.key(), change);
      }
    }
    return all;
  }

  private void note(DocumentChange told, String value) {
    CountDownLatch wait = null;
    synchronized (this) {
      if (gate != null && --gateAfter <= 0) {
        wait = gate;
      }
    }
    if (wait != null) {
      try {
        wait.await();
      } catch (InterruptedException ended) {
        Thread.currentThread().interrupt();
      }
    }
    synchronized (this) {
      int vbucket = told.getVbucket();
      long seqno = told.getOffset().getSeqno();
      var snapshot = told.getOffset().getSnapshot();
      if (seqno <= reached[vbucket]) {
        boolean repeated = mayRepeat && history.get(vbucket).stream().anyMatch(
            change -> change.seqno() == seqno && change.cas() == told.getCas() && change.key().equals(told.getKey()));
        if (!repeated) {
          fail(told.getKey() + " at " + seqno + " of vBucket " + vbucket + " comes after " + reached[vbucket]);
        }
        return;
      }
      if (seqno < snapshot.getStartSeqno() || seqno > snapshot.getEndSeqno()) {
        fail(told.getKey() + " at " + seqno + " is outside of " + snapshot);
      }
      reached[vbucket] = seqno;
      history.get(vbucket).add(new Change(told.getKey(), seqno, told.getCas(), value));
    }
  }

  private synchronized void fail(String what) {
    broken = broken == null ? what : broken;
  }

  @Override
  public void onMutation(Mutation mutation) {
    note(mutation, new String(mutation.getContent(), StandardCharsets.UTF_8));
  }

  @Override
  public void onDeletion(Deletion deletion) {
    note(deletion, null);
  }

  @Override
  public synchronized void onFailoverLog(FailoverLog log) {
    opened++;
    if (log.getEntries().isEmpty()) {
      fail("an empty failover log");
    }
  }

  @Override
  public synchronized void onSnapshot(SnapshotDetails snapshot) {
    if (!mayRepeat && snapshot.getMarker().getEndSeqno() < reached[snapshot.getVbucket()]) {
      fail("vBucket " + snapshot.getVbucket() + ": " + snapshot.getMarker() + " at " + reached[snapshot.getVbucket()]);
    }
  }

  @Override
  public void onRollback(Rollback rollback) {
    synchronized (this) {
      int vbucket = rollback.getVbucket();
      rollbacks.put(vbucket, rollback.getSeqno());
      history.get(vbucket).removeIf(change -> change.seqno() > rollback.getSeqno());
      reached[vbucket] = rollback.getSeqno();
    }
    rollback.resume();
  }

  @Override
  public synchronized void onStreamEnd(StreamEnd end) {
    ends.merge(end.getReason().toString(), 1, Integer::sum);
    if (end.getReason().value() > 3) {
      fail("vBucket " + end.getVbucket() + " ends: " + end.getReason());
    }
  }

  @Override
  public void onFailure(StreamFailure failure) {
    fail("vBucket " + failure.getVbucket() + ": " + failure.getCause());
  }

  @Override
  public void close() {
    client.disconnect().block(Duration.ofSeconds(30));
  }
}
