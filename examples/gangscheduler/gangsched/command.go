package gangsched

import (
	"fmt"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	defaultName = "gang-scheduler"
	// ReadyMessage is the log line of a scheduler that has started; see Scheduler.Ready.
	ReadyMessage = "placing gangs"
)

// NewCommand returns the command line of the scheduler. It runs until the command's context ends.
func NewCommand() *cobra.Command {
	var kubeconfig, logLevel, url string
	options := Options{}
	command := &cobra.Command{
		Use:   "gangscheduler",
		Short: "A small gang scheduler that reserves at GlobalReserve before it binds",
		Args:  cobra.NoArgs,
		// Errors are printed by main, once and without the list of flags.
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			level, err := logrus.ParseLevel(logLevel)
			if err != nil {
				return fmt.Errorf("--log-level: %w; give debug, info, warn or error", err)
			}
			log := logrus.New()
			log.SetLevel(level)
			options.Log = log
			// Without --kubeconfig: $KUBECONFIG, the home directory, then the pod's service account.
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
			if err != nil {
				return fmt.Errorf("find the cluster: %w; give --kubeconfig", err)
			}
			config.QPS = -1 // the API server's own flow control is the limit
			if options.Client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			if _, err := options.Client.Discovery().ServerVersion(); err != nil {
				log.WithError(err).Warn("the cluster does not answer; waiting for it")
			}
			if url != "" {
				server, err := NewClient(url)
				if err != nil {
					return fmt.Errorf("--globalreserve-url: %w", err)
				}
				defer server.Close()
				options.GlobalReserve = server
			}
			scheduler, err := New(options)
			if err != nil {
				return err
			}
			return scheduler.Run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "",
		"path of a kubeconfig; default: $KUBECONFIG, ~/.kube/config, or the pod's service account")
	flags.StringVar(&options.SchedulerName, "scheduler-name", defaultName,
		"place the pods that have this as their schedulerName")
	flags.StringVar(&url, "globalreserve-url", "",
		"where GlobalReserve serves, such as http://127.0.0.1:23456; without it, pods are bound on this scheduler's own view")
	flags.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	return command
}
