package shop;

import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cache.annotation.CacheEvict;
import org.springframework.cache.annotation.Cacheable;
import org.springframework.cache.annotation.EnableCaching;

/** An application of Spring Boot: all that it has is what Boot configures by itself. */
@SpringBootApplication
@EnableCaching
public class Shop {
  private final AtomicInteger computed = new AtomicInteger();

  /** Something slow, kept in the cache `prices`. */
  @Cacheable("prices")
  public Integer price(String chair) {
    return 100 * computed.incrementAndGet();
  }

  /** Takes one out of the cache. */
  @CacheEvict("prices")
  public void raise(String chair) {}
}
