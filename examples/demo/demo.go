package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// The size of the race. Few pods fill a node, so that the last capacity on each is fought for often; all
// pods have the same size, so that how many fit is plain arithmetic.
const (
	nodeCount     = 50
	nodeCPUs      = 16
	podCPUs       = 4
	demandPercent = 120
	gangSize      = 5
	gangPercent   = 25 // of the demand

	podsThatFit = nodeCount * (nodeCPUs / podCPUs)
)

// demo is one execution.
type demo struct {
	*cluster
	watcher *clusterload.Watcher
	tally   *tally
	page    *page
}

// demoOptions say how far the demo goes.
type demoOptions struct {
	once   bool   // it ends after the table
	record string // a file for what happened in the runs; empty: none
}

// runDemo is the whole demo. Unless it is to run once it returns only when the context ends.
func runDemo(ctx context.Context, out io.Writer, o demoOptions) (err error) {
	fmt.Fprintf(out, "%d nodes, two kube-schedulers and a gang scheduler, and pods for %d%% of the capacity.\n", nodeCount,
		demandPercent)
	d := &demo{tally: newTally()}
	d.page = newPage(d.tally)
	if d.cluster, err = startCluster(ctx, out, nodeCount, nodeCPUs, controlplane.Options{}); err != nil {
		return ended(ctx, err, o.once)
	}
	d.watcher = clusterload.NewWatcher(d.cp.Client(), d.tally.look)
	defer func() {
		failed := err != nil && ctx.Err() == nil
		d.page.stop()
		d.watcher.Stop()
		err = errors.Join(ended(ctx, err, o.once), d.stop(failed))
	}()
	return d.course(ctx, out, o)
}

// ended returns what an error means once the demo was interrupted: what was under way fails, and only
// with --once, where a result was promised, is that a failure of the demo.
func ended(ctx context.Context, err error, once bool) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	if once {
		return errors.New("interrupted before there was a result")
	}
	return nil
}

// course is what happens on the running control plane.
func (d *demo) course(ctx context.Context, out io.Writer, o demoOptions) error {
	if err := d.watcher.Start(ctx); err != nil {
		return err
	}
	d.out.step("there is capacity for %d pods of %d CPUs", podsThatFit, podCPUs)
	if !o.once {
		if err := d.page.serve(ctx); err != nil {
			return err
		}
		d.out.line("")
		d.out.line("See both runs side by side, as they are and again at a tenth of the speed: %s", d.page.url())
		d.out.line("What the server sees, in either run, is at %s", d.livePage())
		d.out.line("")
		d.page.link("what the server sees: nodes, who waits, reservations, conflicts", d.livePage())
	}
	before, err := d.raceObserved(ctx)
	if err != nil {
		return err
	}
	server, second, after, err := d.raceWithServer(ctx)
	if err != nil {
		return err
	}
	d.out.line("")
	if err := writeTable(out, before, after); err != nil {
		return err
	}
	d.out.line("")
	d.out.line("%s", explain(before))
	verdict := judge(before, after)
	for _, warning := range verdict.warnings {
		d.out.line("Note: %s", warning)
	}
	if o.record != "" {
		if err := d.page.recording.save(o.record); err != nil {
			return err
		}
	}
	if o.once || verdict.err != nil {
		return verdict.err
	}
	return d.stay(ctx, server.URL, schedulers{}, second)
}

// raceObserved runs the race with schedulers that do not ask, beside a server that only observes and notes each
// conflict.
func (d *demo) raceObserved(ctx context.Context) (result, error) {
	const observer = "globalreserve-observing"
	d.out.step("starting a GlobalReserve server that only observes")
	server, err := d.startServer(ctx, observer, "--observe")
	if err != nil {
		return result{}, err
	}
	before, err := d.race(ctx, race{label: "without GlobalReserve", observerURL: server.URL})
	if err != nil {
		return result{}, err
	}
	return before, d.cp.StopPart(observer)
}

// raceWithServer clears the cluster and runs the race again behind a GlobalReserve server.
func (d *demo) raceWithServer(ctx context.Context) (*clusterload.Server, schedulers, result, error) {
	d.out.step("clearing the cluster for the second run")
	if err := clusterload.DeletePods(ctx, d.cp.Client(), namespace); err != nil {
		return nil, schedulers{}, result{}, err
	}
	if err := d.watcher.CatchUp(ctx); err != nil {
		return nil, schedulers{}, result{}, err
	}
	d.watcher.Reset()
	d.out.step("starting GlobalReserve")
	server, err := d.startServer(ctx, clusterload.ServerName)
	if err != nil {
		return nil, schedulers{}, result{}, err
	}
	with := schedulers{suffix: "-with-globalreserve", serverURL: server.URL}
	after, err := d.race(ctx, race{label: "with GlobalReserve", schedulers: with, keep: true})
	return server, with, after, err
}

// stay leaves the cluster to visitors until the context ends.
func (d *demo) stay(ctx context.Context, url string, without, with schedulers) error {
	d.out.line("")
	d.out.line("The cluster and all three schedulers stay up until Ctrl-C.")
	hints := []hint{
		{"kubectl get pods --field-selector spec.nodeName=", "the pods that wait"},
		{"kubectl reserve pods --ledger-url $URL", "what each scheduler has"},
		{"kubectl reserve nodes node-0 --ledger-url $URL", "what is promised and bound there, and to whom"},
	}
	if waiting := d.waitingPod(ctx); waiting != "" {
		hints = append(hints, hint{"kubectl reserve explain " + waiting + " --ledger-url $URL", "why that pod waits"})
	}
	if err := d.printHints(url, append(hints, hint{"curl -sS $URL/v1/nodes/node-0", "the same, as JSON"})); err != nil {
		return err
	}
	d.out.line("The page has switches: pods come and go, and the schedulers ask GlobalReserve or do not: %s", d.page.url())
	behind := controls{Behind: true}
	c := &churn{cluster: d.cluster, tally: d.tally, with: with, without: without, wished: behind, is: behind}
	d.page.handOver(c)
	if err := c.run(ctx); err != nil {
		return err
	}
	d.out.line("")
	d.out.line("Stopping.")
	return nil
}
