// Command drain is a controller that drains the nodes with a taint, by pkg/drain: a place is kept for each pod before
// one is evicted. README.md says how to run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/globalreserve/globalreserve/pkg/client"
	"github.com/globalreserve/globalreserve/pkg/drain"
	"github.com/globalreserve/globalreserve/pkg/generated/clientset/versioned"
)

// controller drains nodes, each by itself.
type controller struct {
	how   drain.Options // but for the nodes
	taint string
	every time.Duration
	log   *logrus.Logger

	running sync.WaitGroup
	mu      sync.Mutex
	end     map[string]context.CancelFunc // by node: ends what is done for it
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig; default: $KUBECONFIG or ~/.kube/config")
	url := flag.String("globalreserve-url", "http://127.0.0.1:23456", "where GlobalReserve serves")
	taint := flag.String("taint", "example.com/drain", "drain the nodes that have a taint with this key")
	every := flag.Duration("every", 10*time.Second, "how often to look for nodes, and to try again what failed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *kubeconfig, *url, *taint, *every)
	stop()
	if err != nil {
		logrus.Fatal(err)
	}
}

// run drains nodes until ctx ends.
func run(ctx context.Context, kubeconfig, url, taint string, every time.Duration) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w; give --kubeconfig", err)
	}
	config.QPS = -1 // the API server has limits of its own
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	reservations, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	server, err := client.New(client.Options{URL: url})
	if err != nil {
		return fmt.Errorf("--globalreserve-url: %w", err)
	}
	defer server.Close()
	log := logrus.New()
	c := &controller{taint: taint, every: every, log: log, end: map[string]context.CancelFunc{}, how: drain.Options{
		Kube: kube, Reservations: reservations, Server: server, IgnoreDaemonSets: true, DeleteEmptyDirData: true,
		Out: log.WriterLevel(logrus.InfoLevel), ErrOut: log.WriterLevel(logrus.WarnLevel),
	}}
	log.WithField("taint", taint).Info("draining nodes")
	defer c.running.Wait()
	for ctx.Err() == nil {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			log.WithError(err).Warn("the nodes could not be listed")
		}
		c.pause(ctx)
	}
	return nil
}

// look begins to drain the nodes that have the taint, and ends what is done for those that have it no more.
func (c *controller) look(ctx context.Context) error {
	nodes, err := c.how.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tainted := map[string]bool{}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		if !slices.ContainsFunc(nodes.Items[i].Spec.Taints, func(t v1.Taint) bool { return t.Key == c.taint }) {
			continue
		}
		if tainted[name] = true; c.end[name] == nil {
			wanted, end := context.WithCancel(ctx)
			c.end[name] = end
			c.running.Go(func() { c.drain(ctx, wanted, name) })
		}
	}
	for name, end := range c.end {
		if !tainted[name] {
			end()
		}
	}
	return nil
}

// drain drains a node for as long as that is wanted, and then takes it back. If the controller is stopped it leaves
// everything as it is: all that a drain knows is in the cluster, and the next process goes on.
func (c *controller) drain(ctx, wanted context.Context, node string) {
	how, log := c.how, c.log.WithField("node", node)
	how.Nodes = []string{node}
	d := drain.New(how)
	for wanted.Err() == nil {
		if err := d.Run(wanted); err != nil && wanted.Err() == nil { // again also where it is drained: pods may come
			log.WithError(err).Warn("not drained, trying again")
		}
		c.pause(wanted)
	}
	for ctx.Err() == nil {
		err := d.Undo(ctx)
		if err == nil {
			break
		}
		log.WithError(err).Warn("not taken back, trying again")
		c.pause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.end, node)
}

func (c *controller) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(c.every):
	}
}
