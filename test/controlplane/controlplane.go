package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
)

// Names of the parts that are no schedulers. A scheduler's part has the scheduler's name.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Kwok              = "kwok"
)

// Options says what a control plane consists of. The zero value is etcd and an API server.
type Options struct {
	// Workloads starts kube-controller-manager, without which nothing makes ReplicaSets, deletes namespaces
	// or collects garbage, and pods need no service account; and kwok, which plays the kubelet of every
	// node: it runs its pods, completes those of Jobs and removes deleted ones.
	Workloads bool
	// FeatureGates are set on every Kubernetes part.
	FeatureGates map[string]bool
	// APIServerArgs are added to the API server's command line.
	APIServerArgs []string
	// Progress receives what the build of the binaries reports. Default: standard error.
	Progress io.Writer
}

// ControlPlane is a running control plane. It is safe for concurrent use.
type ControlPlane struct {
	options    Options
	bin        string
	dir        string
	ports      *ports
	apiPort    int
	etcdURL    string
	identities *identities
	client     kubernetes.Interface
	dynamic    dynamic.Interface
	mapper     *restmapper.DeferredDiscoveryRESTMapper

	mu       sync.Mutex // guards what follows
	parts    []*Process // in the order they were added
	proxies  []*FaultProxy
	keepLogs bool
	stopped  bool
}

var errStopped = errors.New("the control plane is stopped")

// Start brings up a control plane and returns when all of it is ready, in about three seconds.
// On failure nothing is left running, and the error names the file with the log; where ctx was
// canceled there is no failure to look into, and no file is left either.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Progress == nil {
		options.Progress = os.Stderr
	}
	bin, err := binaries(ctx, options.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "globalreserve-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the control plane: %w", err)
	}
	c := &ControlPlane{options: options, bin: bin, dir: dir, ports: &ports{}}
	if err := c.start(ctx); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			c.KeepLogs()
		}
		return nil, errors.Join(fmt.Errorf("start the control plane: %w", err), c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) error {
	for _, dir := range []string{c.LogDir(), c.path("kubeconfig"), c.path("pki"), c.path("config")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("lay out its directory: %w", err)
		}
	}
	if err := c.setUpIdentities(); err != nil {
		return err
	}
	if err := c.startEtcdAndAPIServer(ctx); err != nil {
		return err
	}
	clients, clientsCtx := errgroup.WithContext(ctx)
	if c.options.Workloads {
		clients.Go(func() error { return c.startControllerManager(clientsCtx) })
		clients.Go(func() error { return c.startKwok(clientsCtx) })
	}
	if err := clients.Wait(); err != nil {
		return err
	}
	return c.awaitNamespace(ctx, "default")
}

// Stop ends every process and removes the directory. The API server and etcd come last and are killed at once, because
// nothing they would still write is kept; everything else gets SIGTERM, and SIGKILL when it does not end by itself. An
// error means that a process or a file is left. Stopping again does nothing.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil
	}
	c.stopped = true
	parts, proxies, keepLogs := c.parts, c.proxies, c.keepLogs
	c.mu.Unlock()

	var clients, servers []*Process
	for _, p := range parts {
		if p.Name() == APIServer || p.Name() == Etcd {
			servers = append(servers, p)
		} else {
			clients = append(clients, p)
		}
	}
	errs := []error{end(clients)}
	for _, proxy := range proxies {
		errs = append(errs, proxy.Stop())
	}
	for _, server := range servers {
		errs = append(errs, server.Kill())
	}
	c.ports.release()
	errs = append(errs, c.removeFiles(keepLogs))
	return errors.Join(errs...)
}

// end stops processes side by side. One that had to be killed is no error: it is gone.
func end(parts []*Process) error {
	var group errgroup.Group
	for _, p := range parts {
		group.Go(func() error {
			if _, err := p.Stop(); err != nil {
				return p.Kill()
			}
			return nil
		})
	}
	return group.Wait()
}

func (c *ControlPlane) removeFiles(keepLogs bool) error {
	if !keepLogs {
		return os.RemoveAll(c.dir)
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if path := filepath.Join(c.dir, entry.Name()); path != c.LogDir() {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// KeepLogs makes Stop leave LogDir behind.
func (c *ControlPlane) KeepLogs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepLogs = true
}

// LogDir is the directory with one log file per process.
func (c *ControlPlane) LogDir() string { return c.path("logs") }

// Dir is the directory of the control plane. Callers may put files there; Stop removes them.
func (c *ControlPlane) Dir() string { return c.dir }

// URL is the address of the API server. It stays the same over restarts.
func (c *ControlPlane) URL() string { return "https://127.0.0.1:" + strconv.Itoa(c.apiPort) }

// BinDir is the directory of the programs, kubectl among them.
func (c *ControlPlane) BinDir() string { return c.bin }

// FreePort returns a TCP port on 127.0.0.1 that no other control plane is given until Stop.
func (c *ControlPlane) FreePort() (int, error) { return c.ports.take() }

// StartPart starts a part again that was stopped or killed, on the same port and the same data,
// and waits until it is ready.
func (c *ControlPlane) StartPart(ctx context.Context, name string) error {
	p, err := c.Process(name)
	if err != nil {
		return err
	}
	return p.Start(ctx)
}

// StopPart ends a part with SIGTERM and waits until it is gone.
func (c *ControlPlane) StopPart(name string) error {
	p, err := c.Process(name)
	if err != nil {
		return err
	}
	_, err = p.Stop()
	return err
}

// Kill ends a part with SIGKILL and waits until it is gone.
func (c *ControlPlane) Kill(name string) error {
	p, err := c.Process(name)
	if err != nil {
		return err
	}
	return p.Kill()
}

// Process returns a part, a scheduler or a program started by StartProcess by its name.
func (c *ControlPlane) Process(name string) (*Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.parts {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the control plane has no part named %q", name)
}

// StartProcess runs a program that belongs to the control plane from now on: Stop ends it before
// the API server. LogFile defaults to a file in LogDir named after the program.
func (c *ControlPlane) StartProcess(ctx context.Context, options ProcessOptions) (*Process, error) {
	options.Name = cmp.Or(options.Name, filepath.Base(options.Path))
	options.LogFile = cmp.Or(options.LogFile, filepath.Join(c.LogDir(), options.Name+".log"))
	p := NewProcess(options)
	if err := c.add(p); err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// add registers a process before it starts, so that a concurrent Stop cannot miss it.
func (c *ControlPlane) add(added *Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return fmt.Errorf("start %s: %w", added.Name(), errStopped)
	}
	for _, p := range c.parts {
		if p.Name() == added.Name() {
			return fmt.Errorf("there is a process named %q already; use StartPart to start it again", p.Name())
		}
	}
	c.parts = append(c.parts, added)
	return nil
}

// usable fails once Stop has begun.
func (c *ControlPlane) usable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return errStopped
	}
	return nil
}

func (c *ControlPlane) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}
