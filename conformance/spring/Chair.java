package shop;

import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.couchbase.core.mapping.Document;

/** A document; its version is the CAS. */
@Document
public class Chair {
  @Id public String name;
  @Version public long version;
  public int seats;

  /** A chair that is not stored. */
  public static Chair of(String name, int seats) {
    Chair chair = new Chair();
    chair.name = name;
    chair.seats = seats;
    return chair;
  }
}
