package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
	namespace   = "default"
)

// demo is one execution.
type demo struct {
	out     *progress
	cp      *controlplane.ControlPlane
	watcher *clusterload.Watcher
	self    string // the path of this program
}

// runDemo is the whole demo. Unless once is set it returns only when the context ends.
func runDemo(ctx context.Context, out io.Writer, once bool) (err error) {
	d := &demo{out: newProgress(out)}
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	if err := checkServer(); err != nil {
		return err
	}
	d.out.line("%d nodes, two kube-schedulers and a gang scheduler, and pods for %d%% of the capacity.", nodeCount, demandPercent)
	d.out.step("starting etcd and kube-apiserver")
	d.cp, err = controlplane.Start(ctx, controlplane.Options{Progress: out})
	if err != nil {
		return ended(ctx, err, once)
	}
	defer func() {
		failed := err != nil && ctx.Err() == nil
		err = errors.Join(ended(ctx, err, once), d.stop(failed))
	}()
	return d.course(ctx, out, once)
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
func (d *demo) course(ctx context.Context, out io.Writer, once bool) error {
	if err := d.createNodes(ctx); err != nil {
		return err
	}
	before, err := d.race(ctx, race{label: "without GlobalReserve"})
	if err != nil {
		return err
	}
	server, after, err := d.raceWithServer(ctx)
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
	if once || verdict.err != nil {
		return verdict.err
	}
	return d.stay(ctx, server.URL)
}

// checkServer says early what is missing, before anything is started.
func checkServer() error {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	path := filepath.Join(root, "bin", "globalreserve")
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("the server's binary is missing (%w); run 'make build' first, or 'make demo', which does", err)
	}
	return nil
}

func (d *demo) createNodes(ctx context.Context) error {
	_, err := d.cp.CreateNodes(ctx, nodeCount, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(nodeCPUs, resource.DecimalSI),
		corev1.ResourceMemory: resource.MustParse("64Gi"),
	}})
	if err != nil {
		return err
	}
	d.watcher = clusterload.NewWatcher(d.cp.Client())
	if err := d.watcher.Start(ctx); err != nil {
		return err
	}
	d.out.step("%d nodes with %d CPUs each: capacity for %d pods of %d CPUs", nodeCount, nodeCPUs, podsThatFit, podCPUs)
	return nil
}

// raceWithServer clears the cluster and runs the race again behind a GlobalReserve server.
func (d *demo) raceWithServer(ctx context.Context) (*clusterload.Server, result, error) {
	d.out.step("clearing the cluster for the second run")
	if err := clusterload.DeletePods(ctx, d.cp.Client(), namespace); err != nil {
		return nil, result{}, err
	}
	if err := d.watcher.CatchUp(ctx); err != nil {
		return nil, result{}, err
	}
	d.watcher.Reset()
	d.out.step("starting GlobalReserve")
	server, err := clusterload.StartServer(ctx, d.cp, clusterload.ServerOptions{})
	if err != nil {
		return nil, result{}, err
	}
	after, err := d.race(ctx, race{label: "with GlobalReserve", serverURL: server.URL, keep: true})
	return server, after, err
}

// stay leaves the cluster up until the context ends.
func (d *demo) stay(ctx context.Context, url string) error {
	kubeconfig, err := d.cp.AdminKubeconfig()
	if err != nil {
		return err
	}
	d.out.line("")
	d.out.line("The cluster and all three schedulers stay up until Ctrl-C. Try, in another terminal:")
	d.out.line("")
	d.out.line("  export KUBECONFIG=%s", kubeconfig)
	d.out.line("  URL=%s", url)
	d.out.line("")
	d.out.line("  kubectl get pods --field-selector spec.nodeName=     # the pods that wait")
	d.out.line("  curl -s $URL/v1/nodes/node-0                         # what is promised and bound there, and to whom")
	if waiting := d.waitingPod(ctx); waiting != "" {
		d.out.line("  curl -s \"$URL/v1/explain?namespace=%s&pod=%s\"   # why that pod waits", namespace, waiting)
	}
	<-ctx.Done()
	d.out.line("")
	d.out.line("Stopping.")
	return nil
}

// stop ends every process that the demo started.
func (d *demo) stop(failed bool) error {
	if d.watcher != nil {
		d.watcher.Stop()
	}
	if failed {
		d.cp.KeepLogs()
		d.out.line("The logs are in %s", d.cp.LogDir())
	}
	return d.cp.Stop()
}

// progress prints what happens, with the time since the start.
type progress struct {
	out   io.Writer
	began time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out: out, began: time.Now()} }

func (p *progress) line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) step(format string, args ...any) {
	fmt.Fprintf(p.out, "[%5.1fs] %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}
