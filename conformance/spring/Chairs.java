package shop;

import org.springframework.data.couchbase.repository.CouchbaseRepository;

/** Chairs by their name. */
public interface Chairs extends CouchbaseRepository<Chair, String> {}
