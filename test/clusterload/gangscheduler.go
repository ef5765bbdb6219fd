package clusterload

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// GangSchedulerOptions says how to run the example gang scheduler as a process.
type GangSchedulerOptions struct {
	// Name is the name of the part, and SchedulerName the schedulerName of its pods. Name defaults to SchedulerName.
	Name, SchedulerName string
	// ServerURL is GlobalReserve's; empty: it binds on its own view.
	ServerURL string
	// Command runs the scheduler; its flags are added.
	Command []string
}

// StartGangScheduler starts the example gang scheduler and returns when it places gangs. It ends
// with its control plane.
func StartGangScheduler(
	ctx context.Context, cp *controlplane.ControlPlane, options GangSchedulerOptions,
) (*controlplane.Process, error) {
	options.Name = cmp.Or(options.Name, options.SchedulerName)
	// The user kube-scheduler runs as may do all that a scheduler needs.
	kubeconfig, err := cp.Kubeconfig("system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	args := slices.Concat(options.Command[1:],
		[]string{"--kubeconfig=" + kubeconfig, "--scheduler-name=" + options.SchedulerName})
	if options.ServerURL != "" {
		args = append(args, "--globalreserve-url="+options.ServerURL)
	}
	log := filepath.Join(cp.LogDir(), options.Name+".log")
	return cp.StartProcess(ctx, controlplane.ProcessOptions{
		Name: options.Name, Path: options.Command[0], Args: args, LogFile: log, Ready: LogSays(log, gangsched.ReadyMessage),
	})
}

// LogSays is satisfied once a text is in a log file. A log is appended to, so that it does not tell when
// a program that is started again is ready.
func LogSays(file, text string) controlplane.ReadyFunc {
	return func(context.Context) error {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.Contains(content, []byte(text)) {
			return errors.New("its log does not say yet: " + text)
		}
		return nil
	}
}
