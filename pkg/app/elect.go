package app

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/globalreserve/globalreserve/pkg/decide"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
	"github.com/globalreserve/globalreserve/pkg/reservations/store"
)

// ElectionOptions configures the election of the server that decides, among all servers of a cluster.
type ElectionOptions struct {
	// LeaderElect false makes this server decide without being elected.
	LeaderElect bool
	// Namespace is that of the Lease; all servers of a cluster name the same.
	Namespace string
	// Times are those of the Lease.
	Times election.Times
}

func defaultElection() ElectionOptions {
	return ElectionOptions{LeaderElect: true, Namespace: metav1.NamespaceSystem, Times: election.DefaultTimes()}
}

// addFlags uses the flag names of Kubernetes' own components.
func (o *ElectionOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"let one server of the cluster decide at any time; without it two servers give the same capacity away twice")
	fs.StringVar(&o.Namespace, "leader-elect-resource-namespace", o.Namespace, "namespace of the Lease \""+
		election.LeaseName+"\"; the same for all servers of a cluster")
	fs.DurationVar(&o.Times.Lease, "leader-elect-lease-duration", o.Times.Lease,
		"after how long a server that has gone silent is replaced; 4s, with 3s and 1s for the next two flags, where that "+
			"has to be sooner")
	fs.DurationVar(&o.Times.Renew, "leader-elect-renew-deadline", o.Times.Renew,
		"how long the server that decides tries to renew its lease before it gives up")
	fs.DurationVar(&o.Times.Retry, "leader-elect-retry-period", o.Times.Retry,
		"how often a server tries to get or renew the lease; the API server abandons a write of the leader after three "+
			"quarters of it")
}

func (o *ElectionOptions) validate(bindTimeout time.Duration) error {
	if o.Namespace == "" {
		return fmt.Errorf("--leader-elect-resource-namespace is empty; give the one that all servers of the cluster have, "+
			"such as %s", metav1.NamespaceSystem)
	}
	if err := o.Times.Validate(decide.RequestTimeout(bindTimeout)); err != nil {
		return fmt.Errorf("--bind-timeout and --leader-elect-lease-duration, -renew-deadline and -retry-period do not go "+
			"together: %w", err)
	}
	return nil
}

func (a *App) newElector(clients Clients) (*election.Elector, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name of this host, under which the lease %s is held: %w", election.LeaseName, err)
	}
	o := &a.options.Election
	return election.New(election.Options{
		Client: clients.Core, Terms: clients.Reservations.GlobalreserveV1alpha1().LedgerTerms(),
		Clock:     a.options.Clock,
		Namespace: o.Namespace, Identity: host + "_" + string(uuid.NewUUID()), Times: o.Times, Alone: !o.LeaderElect,
		Bind: decide.RequestTimeout(a.options.BindTimeout), Object: store.Timeout,
		Follow: a.mayFollow.Open, Stale: a.staleKinds, StandBy: a.standBy, TakeOver: a.takeOver, Resume: a.resume, Log: a.log,
	})
}
