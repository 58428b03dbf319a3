package main

import (
	"time"

	"github.com/couchbase/gocb/v2"
)

// managesUsers makes a user and a group with roles down to a collection; what changes holds for open connections.
func managesUsers(w *world) {
	collections, users := w.bucket.CollectionsV2(), w.cluster.Users()
	must(collections.CreateScope("office", nil), "create scope")
	for _, name := range []string{"open", "closed"} {
		must(collections.CreateCollection("office", name, nil, nil), "create collection")
		must1(w.bucket.Scope("office").Collection(name).Upsert("k", document{"in": name}, nil))
	}
	reader := gocb.Role{Name: "data_reader", Bucket: "default", Scope: "office", Collection: "open"}
	// Of a group's roles the SDK sends neither scope nor collection.
	searcher := gocb.Role{Name: "fts_searcher", Bucket: "default"}
	must(users.UpsertGroup(gocb.Group{Name: "searchers", Roles: []gocb.Role{searcher}}, nil), "make a group")
	equal(must1(users.GetGroup("searchers", nil)).Roles, []gocb.Role{searcher}, "roles of the group")
	must1(users.GetRoles(nil))
	ana := gocb.User{
		Username: "ana", DisplayName: "Ana", Password: "secret", Groups: []string{"searchers"}, Roles: []gocb.Role{reader},
	}
	must(users.UpsertUser(ana, nil), "make a user")
	found := must1(users.GetUser("ana", nil))
	equal(found.DisplayName, "Ana", "name of the user")
	equal(found.Roles, []gocb.Role{reader}, "roles of the user")
	equal(found.EffectiveRoles[1].Role, searcher, "role by the group")
	equal(len(must1(users.GetAllUsers(nil))), 1, "users")

	cluster := must1(connect(w.node, "ana", "secret"))
	defer func() { must(cluster.Close(nil), "close") }()
	office := cluster.Bucket("default").Scope("office")
	c := office.Collection("open")
	holds(c, "k", document{"in": "open"})
	_, err := c.Upsert("k", document{}, nil)
	refused(err, "a write", gocb.ErrAuthenticationFailure)
	short := &gocb.GetOptions{Timeout: 500 * time.Millisecond}
	// The SDK asks for a collection that there is not until time is out.
	_, err = office.Collection("closed").Get("k", short)
	refused(err, "a closed collection", gocb.ErrUnambiguousTimeout, gocb.ErrCollectionNotFound)

	writer := reader
	writer.Name = "data_writer"
	ana.Roles = []gocb.Role{writer, {Name: "data_reader", Bucket: "default", Scope: "office"}}
	must(users.UpsertUser(ana, nil), "change a user")
	must1(c.Upsert("k", document{"by": "ana"}, nil))
	holds(office.Collection("closed"), "k", document{"in": "closed"})
	must(cluster.Users().ChangePassword("sesame", nil), "change the password")

	must(users.DropGroup("searchers", nil), "drop the group")
	refused(users.DropGroup("searchers", nil), "a dropped group", gocb.ErrGroupNotFound)
	must(users.DropUser("ana", nil), "drop the user")
	refused(users.DropUser("ana", nil), "a dropped user", gocb.ErrUserNotFound)
	_, err = c.Get("k", short)
	refused(err, "a read of a dropped user", gocb.ErrAuthenticationFailure, gocb.ErrUnambiguousTimeout)
	must(collections.DropScope("office", nil), "drop scope")
}
