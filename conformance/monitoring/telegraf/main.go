// Command telegraf runs Telegraf's input plugin `couchbase`, unmodified, once against a node, and prints what it
// gathered: a JSON object for each measurement, its tags among its fields.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/influxdata/telegraf"
	"github.com/influxdata/telegraf/plugins/inputs"
	"github.com/influxdata/telegraf/plugins/inputs/couchbase"
)

// accumulator takes what a plugin gathers; the calls that this plugin does not make are not there.
type accumulator struct {
	telegraf.Accumulator
	lock   sync.Mutex
	errors []error
}

func (a *accumulator) AddFields(measurement string, fields map[string]any, tags map[string]string, _ ...time.Time) {
	a.lock.Lock()
	defer a.lock.Unlock()
	row := map[string]any{"measurement": measurement, "fields": fields, "tags": tags}
	if err := json.NewEncoder(os.Stdout).Encode(row); err != nil {
		a.errors = append(a.errors, err)
	}
}

func (a *accumulator) AddError(err error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if err != nil {
		a.errors = append(a.errors, err)
	}
}

func main() {
	plugin := inputs.Inputs["couchbase"]().(*couchbase.Couchbase)
	plugin.Servers = os.Args[1:]
	plugin.BucketStatsIncluded = []string{"*"}
	plugin.ClusterBucketStats, plugin.NodeBucketStats = true, true
	plugin.AdditionalStats = []string{"autofailover"}
	var gathered accumulator
	err := plugin.Init()
	if err == nil {
		err = plugin.Gather(&gathered)
	}
	for _, one := range append(gathered.errors, err) {
		if one != nil {
			fmt.Fprintln(os.Stderr, one)
			os.Exit(1)
		}
	}
}
