// Command globalreserve-scheduler is kube-scheduler with the plugin GlobalReserve of pkg/schedulerplugin compiled in.
// It takes the place of the kube-scheduler binary: it has the same flags and reads the same configuration, in which the
// plugin has a section of its own; see scheduler-config/plugin/README.md.
//
// It is a module of its own because k8s.io/kubernetes needs all its staging modules replaced.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/sirupsen/logrus"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the JSON log format, as kube-scheduler has it
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics, as kube-scheduler has them
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/globalreserve/globalreserve/pkg/schedulerplugin"
)

// ballast is memory that is counted by the garbage collector and never touched, so that it takes no room. A scheduler
// of a few thousand nodes keeps some 70 MiB and makes 800 KiB of garbage for each pod: without it a fifth of its
// processor time is spent on collections. With it the heap grows by up to that much more before the next one.
const ballast = 128 << 20

func main() {
	kept := make([]byte, ballast)
	log := logrus.New()
	log.SetOutput(os.Stderr)
	log.SetFormatter(&logrus.TextFormatter{DisableColors: true, FullTimestamp: true})
	plugins := schedulerplugin.NewPlugins(schedulerplugin.Options{Log: log, Out: os.Stderr, Exit: func(err error) {
		log.WithError(err).Error("The scheduler ends")
		os.Exit(1)
	}})
	command := app.NewSchedulerCommand(app.WithPlugin(schedulerplugin.Name, plugins.New))
	command.Use = "globalreserve-scheduler"
	command.PreRunE = checkFile
	code := cli.Run(command)
	if err := plugins.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	runtime.KeepAlive(kept)
	os.Exit(code)
}
