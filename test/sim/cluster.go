package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	globalreserve "github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned/typed/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/test/controlplane"
	"github.com/globalreserve/globalreserve/test/sim/fakekube"
)

// Options are those of a simulation. The zero ones are a plain cluster without trouble.
type Options struct {
	// Seed is where all that is random comes from.
	Seed uint64
	// Steps is how much is done before the cluster is left in peace.
	Steps int
	// Servers, Nodes and Schedulers are how many there are.
	Servers, Nodes, Schedulers int
	// Unfenced leaves the fence out.
	Unfenced bool
	// Pace is by how much less happens in a second than usual: of all that takes its time more comes between two steps.
	Pace int
	// Uncompared has the servers never compare their ledgers with the cluster, and so never mend them.
	Uncompared bool
	// Jumps has the clocks of servers jump. What is promised until a time of day is not judged from then on.
	Jumps bool
	// Calm has nothing happen to servers and networks: little time is allowed for what they hear late.
	Calm bool
	// Limited has a quota come and go, and the servers read a policy file that changes.
	Limited bool
	// Without are the actions and the fates of requests that do not happen.
	Without []string
	// LogLevel is that of the servers; what they log is in the history.
	LogLevel string
}

// longestLate is the longest that a request is late, in milliseconds. Without the fence a server that takes over waits
// for what the one before may have sent: for as long as a bind may take, and a second.
func (o *Options) longestLate() int {
	if o.Unfenced {
		return 8000
	}
	return 20000
}

// Cluster is a cluster that is simulated. All of it is in one bubble of testing/synctest.
type Cluster struct {
	options Options
	random  *rand.Rand // of the driver
	begun   time.Time
	etcd    *fakekube.Etcd
	kube    *apiServers
	admin   kubernetes.Interface                         // whom nothing happens to
	objects globalreserve.GlobalreserveV1alpha1Interface // the same
	dynamic dynamic.Interface                            // the same
	others  *others
	network *network
	servers []*server
	judge   *judge
	policy  *policyFile // nil where there is none
	trouble int         // see link
	crews   int         // how many there were

	steps  atomic.Int64
	quiet  atomic.Bool // nothing happens any more
	jumped atomic.Bool // the clock of a server has jumped

	mu      sync.Mutex // guards what follows
	history []string
	found   error // what was found
	live    []*process
}

// pace is by how much less happens in a second than usual. When nothing else happens all schedulers take their time.
func (c *Cluster) pace() int {
	if c.quiet.Load() {
		return quietPace
	}
	return c.options.Pace
}

const quietPace = 3

// note adds a line to the history.
func (c *Cluster) note(who, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.history = append(c.history, fmt.Sprintf("%10.3fs %-8s %s", time.Since(c.begun).Seconds(), who,
		fmt.Sprintf(format, args...)))
}

// fail ends the simulation with what was found.
func (c *Cluster) fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	c.note("FOUND", "%v", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil {
		c.found = err
	}
}

func (c *Cluster) finding() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found
}

// Result is how a simulation went.
type Result struct {
	// Found is nil where every promise was kept.
	Found error
	// Steps is how much was done before the cluster was left in peace, Bound how many pods the servers bound, and
	// Simulated how long it took there.
	Steps, Bound int
	Simulated    time.Duration
	// History says who did what, and when.
	History []string
}

// Run runs a simulation in the bubble that it is called in.
func Run(o Options) (*Result, error) {
	c := &Cluster{
		options: o, random: rand.New(rand.NewPCG(o.Seed, 1)), begun: time.Now(), etcd: fakekube.NewEtcd(),
		network: newNetwork(),
	}
	c.judge = newJudge(c)
	c.etcd.Follow(c.judge.observe)
	c.others = &others{cluster: c, random: rand.New(rand.NewPCG(o.Seed, 3))}
	var err error
	c.kube, err = newAPIServers(c.etcd, &service{cluster: c, random: rand.New(rand.NewPCG(o.Seed, 2))}, c.others)
	if err != nil {
		return nil, err
	}
	defer c.kube.close()
	if err := c.install(); err != nil {
		return nil, err
	}
	defer c.stop()
	if o.Limited {
		dir, err := os.MkdirTemp("", "globalreserve-policy")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		c.policy = &policyFile{dir}
		c.changePolicy(context.Background())
		c.changeQuota(context.Background())
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	r := &Result{}
	c.drive(r)
	r.Found, r.Bound, r.Simulated, r.History = c.finding(), c.judge.bound, time.Since(c.begun), c.history
	return r, nil
}

// start starts the servers, and waits for one that decides.
func (c *Cluster) start() error {
	for i := range c.options.Servers {
		s := &server{
			cluster: c, name: fmt.Sprintf("server-%d", i), address: fmt.Sprintf("127.0.0.%d", i+2),
			random: rand.New(rand.NewPCG(c.options.Seed, uint64(100+i))),
		}
		c.servers = append(c.servers, s)
		if err := s.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if c.leader() != nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("no server decides after a minute in which nothing happened")
}

// leader returns the process that decides, or nil.
func (c *Cluster) leader() *process {
	for _, s := range c.servers {
		if s.alive() && s.running.app.Deciding() {
			return s.running
		}
	}
	return nil
}

// anyProcess returns one that runs, or nil.
func (c *Cluster) anyProcess(random *rand.Rand) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.live) == 0 {
		return nil
	}
	return c.live[random.IntN(len(c.live))]
}

func (c *Cluster) setLive(change func([]*process) []*process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live = change(c.live)
}

// stop ends all servers.
func (c *Cluster) stop() {
	for _, s := range c.servers {
		if s.running != nil {
			s.running.gate.open()
			s.running.link.cut.open()
		}
		s.end(false)
	}
	for _, s := range c.servers {
		s.ended.Wait()
	}
}

// manifests are the files of which the definitions and the policies are installed, which are those that people deploy.
var manifests = []string{
	"crd/globalreserve.io_*.yaml", fence, "base/records.yaml", "base/servers.yaml", "admission/base/*.yaml",
}

const fence = "base/fence.yaml"

// installed are the kinds in them that an API server needs to be told of.
var installed = []string{
	"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
}

// install makes an empty cluster one with nodes, in which the servers can run.
func (c *Cluster) install() error {
	config := c.kube.config("admin")
	var err error
	if c.admin, err = c.client("admin"); err != nil {
		return err
	}
	if c.objects, err = globalreserve.NewForConfig(config); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	ctx := context.Background()
	for _, name := range []string{"default", "kube-system"} {
		if err := c.createNamespace(ctx, name); err != nil {
			return err
		}
	}
	for _, pattern := range manifests {
		if c.options.Unfenced && pattern == fence {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", "..", "manifests", pattern))
		if err != nil || len(files) == 0 {
			return fmt.Errorf("there is no file manifests/%s: %w", pattern, err)
		}
		for _, file := range files {
			if err := c.apply(ctx, file); err != nil {
				return fmt.Errorf("installing %s: %w", file, err)
			}
		}
	}
	for _, kind := range []*groupKind{volcanoGroups, coschedulingGroups} {
		if err := c.define(ctx, kind, time.Time{}); err != nil {
			return fmt.Errorf("installing PodGroups: %w", err)
		}
	}
	for i := range c.options.Nodes {
		c.addNode(ctx, fmt.Sprintf("node-%d", i))
	}
	time.Sleep(settleTime)
	if err := c.publishAll(ctx); err != nil {
		return fmt.Errorf("publishing devices: %w", err)
	}
	return c.createDevices(ctx)
}

// client returns a client of the API server that nothing happens to.
func (c *Cluster) client(name string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.kube.config(name))
}

// settleTime is how long an API server takes to have what was installed in force.
const settleTime = 2 * time.Second

// apply creates the objects of a file.
func (c *Cluster) apply(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	objects, err := controlplane.Documents(text)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if !slices.Contains(installed, object.GetKind()) {
			continue
		}
		kind, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		_, err := c.dynamic.Resource(kind).Create(ctx, object, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
