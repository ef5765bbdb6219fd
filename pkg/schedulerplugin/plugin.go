package schedulerplugin

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/globalreserve/globalreserve/pkg/kube/cluster"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// Name is the plugin's name in the scheduler's configuration.
const Name = "GlobalReserve"

// Plugin is the plugin of one profile. Plugins.New makes it.
type Plugin struct {
	server *server
	handle fwk.Handle
	log    logrus.FieldLogger
	waker  *waker // of all profiles
	last   atomic.Pointer[read]

	boundByOthers sync.Once // it was logged
}

// read is a pod as it was read last.
type read struct {
	from *v1.Pod
	pod  *cluster.Pod
}

// What the plugin is to the framework.
var (
	_ fwk.PreEnqueuePlugin    = &Plugin{}
	_ fwk.PreFilterPlugin     = &Plugin{}
	_ fwk.PreFilterExtensions = &Plugin{}
	_ fwk.FilterPlugin        = &Plugin{}
	_ fwk.PostFilterPlugin    = &Plugin{}
	_ fwk.PreScorePlugin      = &Plugin{}
	_ fwk.ScorePlugin         = &Plugin{}
	_ fwk.ReservePlugin       = &Plugin{}
	_ fwk.BindPlugin          = &Plugin{}
	_ fwk.PostBindPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions   = &Plugin{}
	_ fwk.SignPlugin          = &Plugin{}
)

// Plugins makes the plugins of one scheduler. All profiles share one server, and one waker.
type Plugins struct {
	Options

	stopped sync.WaitGroup

	mu    sync.Mutex // guards what follows
	waker *waker     // with the server; nil before the first profile
	args  Args       // of the first profile
}

// NewPlugins returns the factory of a scheduler's plugins. The first one that is made starts the server.
func NewPlugins(o Options) *Plugins { return &Plugins{Options: o} }

// New makes the plugin of a profile. It is the framework's PluginFactory.
func (f *Plugins) New(ctx context.Context, section runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	args, err := ReadArgs(section)
	if err != nil {
		return nil, err
	}
	w, err := f.share(ctx, args, handle)
	if err != nil {
		return nil, err
	}
	w.server.waiting.Host(handle.ProfileName(), w.waiting)
	return &Plugin{server: w.server, handle: handle, log: f.Log, waker: w}, nil
}

// share returns the waker of the scheduler, with the server. It starts both for the first profile.
func (f *Plugins) share(ctx context.Context, args *Args, handle fwk.Handle) (*waker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waker == nil {
		server, err := f.startServer(ctx, args, handle)
		if err != nil {
			return nil, fmt.Errorf("plugin %s: %w", Name, err)
		}
		f.use(ctx, newWaker(ctx, server, handle, f.Log), args)
	}
	if !reflect.DeepEqual(f.args, *args) {
		return nil, fmt.Errorf("profile %q has other args for plugin %s than the profiles before it: give all of them the "+
			"same, because they share one ledger", handle.ProfileName(), Name)
	}
	return f.waker, nil
}

// use makes all profiles use a waker, whose server was made from some args. f.mu is held.
func (f *Plugins) use(ctx context.Context, w *waker, args *Args) {
	f.waker, f.args = w, *args
	w.start()
	f.stopped.Go(func() {
		f.followReady(ctx, w)
		w.stop()
	})
}

// lookEvery is how often it is looked whether decisions can be made.
const lookEvery = 50 * time.Millisecond

// followReady wakes the pods that wait for the server, whenever that is ready, until ctx ends. A pod may
// have come in a moment between two looks, so the pods that wait count, and not what was seen at the last look.
func (f *Plugins) followReady(ctx context.Context, w *waker) {
	was := false
	wait.UntilWithContext(ctx, func(context.Context) {
		now := w.server.deciding()
		switch {
		case now == was:
		case now:
			f.Log.WithField("revision", w.server.ledger.Revision()).Info("Decisions can be made on the ledger")
		default:
			f.Log.Warn("No decisions can be made on the ledger")
		}
		was = now
		w.wakeIfReady()
	}, lookEvery)
}

// Wait returns when what the plugins had running has stopped, after the context they
// were made with has ended. It reports what the server says of its end.
func (f *Plugins) Wait() error {
	f.stopped.Wait()
	f.mu.Lock()
	w := f.waker
	f.mu.Unlock()
	if w == nil {
		return nil
	}
	<-w.server.stopped
	return w.server.err
}

// Name implements fwk.Plugin.
func (p *Plugin) Name() string { return Name }

// read returns the plugin's view of a pod that has no node yet. The framework asks more than once for the same one.
func (p *Plugin) read(pod *v1.Pod) (*cluster.Pod, error) {
	if last := p.last.Load(); last != nil && last.from == pod && len(last.pod.Request.Unlisted) == 0 {
		return last.pod, nil
	}
	info, err := p.server.question.Reader.NewPod(pod)
	if err != nil {
		return nil, err
	}
	info = info.WithCaller(ledger.Trusted) // the scheduler has the server in its process
	p.last.Store(&read{pod, info})
	return info, nil
}
