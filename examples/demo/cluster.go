package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/crd"
)

const (
	namespace = "default"

	defaultScheduler = "default-scheduler"
	secondScheduler  = "second-scheduler"
	gangScheduler    = "gang-scheduler"
)

// cluster is a control plane with nodes, our kinds and policies, and the schedulers that both programs run.
type cluster struct {
	out  *progress
	cp   *controlplane.ControlPlane
	bin  string // the folder of what `make build` writes
	self string // the path of this program
	// liveAddress is where the server's page is.
	liveAddress string
}

// startCluster brings up the control plane with nodes, and installs manifests/crd and the policies of manifests/base,
// so that the servers need not wait for the end of each other's binds.
func startCluster(ctx context.Context, out io.Writer, nodes, cpus int,
	options controlplane.Options,
) (_ *cluster, err error) {
	c := &cluster{out: newProgress(out)}
	if c.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if err := c.findBinaries(); err != nil {
		return nil, err
	}
	c.out.step("starting etcd and kube-apiserver")
	options.Progress = out
	if c.cp, err = controlplane.Start(ctx, options); err != nil {
		return nil, err
	}
	if err := c.furnish(ctx, nodes, cpus); err != nil {
		return nil, errors.Join(err, c.stop(ctx.Err() == nil))
	}
	return c, nil
}

// findBinaries says early what is missing, before anything is started.
func (c *cluster) findBinaries() error {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return err
	}
	c.bin = filepath.Join(root, "bin")
	for _, name := range []string{"globalreserve", "kubectl-reserve"} {
		if _, err := os.Stat(filepath.Join(c.bin, name)); err != nil {
			return fmt.Errorf("a binary is missing (%w); run 'make build' first, or 'make demo' or 'make cluster', which do",
				err)
		}
	}
	return nil
}

// furnish creates the nodes and installs the definitions and policies side by side.
func (c *cluster) furnish(ctx context.Context, nodes, cpus int) error {
	port, err := c.cp.FreePort()
	if err != nil {
		return err
	}
	c.liveAddress = "127.0.0.1:" + strconv.Itoa(port)
	c.out.step("creating %d nodes with %d CPUs each, and installing manifests/crd and the policies of manifests/base",
		nodes, cpus)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := c.cp.CreateNodes(ctx, nodes, controlplane.NodeTemplate{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
			corev1.ResourceMemory: resource.MustParse("64Gi"),
		}})
		return err
	})
	group.Go(func() error { return crd.Prepare(ctx, c.cp) })
	return group.Wait()
}

// startServer starts a GlobalReserve server by the name of its part. All of them, one after the other, have their live
// page at the same address.
func (c *cluster) startServer(ctx context.Context, name string, args ...string) (*clusterload.Server, error) {
	return clusterload.StartServer(ctx, c.cp, clusterload.ServerOptions{
		Name: name, Args: slices.Concat(args, []string{"--ui-address=" + c.liveAddress}, clusterload.QuickLease),
	})
}

// livePage is the URL of the server's page.
func (c *cluster) livePage() string { return "http://" + c.liveAddress + "/" }

// schedulers are the three that compete, as processes of one run.
type schedulers struct {
	// suffix keeps the processes of the runs apart.
	suffix string
	// serverURL is GlobalReserve's; empty: every scheduler binds on its own view.
	serverURL string
}

func (s schedulers) parts() []string {
	return []string{defaultScheduler + s.suffix, secondScheduler + s.suffix, gangScheduler + s.suffix}
}

func (c *cluster) startSchedulers(ctx context.Context, s schedulers) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range []string{defaultScheduler, secondScheduler} {
		group.Go(func() error {
			config, err := clusterload.SchedulerConfig(name+".yaml", s.serverURL)
			if err != nil {
				return err
			}
			return c.cp.StartScheduler(ctx, name+s.suffix, config)
		})
	}
	group.Go(func() error {
		_, err := clusterload.StartGangScheduler(ctx, c.cp, clusterload.GangSchedulerOptions{
			Name: gangScheduler + s.suffix, SchedulerName: gangScheduler, ServerURL: s.serverURL,
			Command: []string{c.self, "gangscheduler"},
		})
		return err
	})
	return group.Wait()
}

func (c *cluster) stopSchedulers(s schedulers) error {
	var errs []error
	for _, name := range s.parts() {
		errs = append(errs, c.cp.StopPart(name))
	}
	return errors.Join(errs...)
}

// stop ends every process that was started and removes their files.
func (c *cluster) stop(failed bool) error {
	if failed {
		c.cp.KeepLogs()
		c.out.line("The logs are in %s", c.cp.LogDir())
	}
	return c.cp.Stop()
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
