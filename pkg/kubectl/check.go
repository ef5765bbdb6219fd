package kubectl

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/globalreserve/globalreserve/pkg/check"
	"github.com/globalreserve/globalreserve/pkg/version"
)

// checkPause is how long a check waits before it looks again.
const checkPause = time.Second

type checkOptions struct {
	command
	wait time.Duration
	race bool
}

// report is what check prints with -o.
type report struct {
	State check.State  `json:"state"`
	Lines []check.Line `json:"lines"`
}

func newCheckCommand(env *environment) *cobra.Command {
	o := &checkOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the cluster is protected, and what to do where it is not",
		Long: `Look at all that keeps capacity from being given twice: definitions, who decides, the fence against late
writes, what the servers hear and say of themselves, versions and clocks, the admission webhooks, and which schedulers
bind pods and which of them ask. Nothing is changed. The exit code is 1 where something fails; a warning may be meant
so.

--race also tries it out, in a namespace that is removed afterwards: two Reservations compete for one host port of a
node that has 1m of CPU left.

No line of -o json or yaml has the name of a pod, so that it may be shown to others.`,
		Example: `  # After an installation: wait until nothing fails any more
  kubectl reserve check --wait --race

  # For a report to others
  kubectl reserve check -o json`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "look again until nothing fails, for at most so long: --wait=2m")
	cmd.Flags().Lookup("wait").NoOptDefVal = defaultWait.String()
	cmd.Flags().BoolVar(&o.race, "race", false, "try a reservation, a conflict and a release, too")
	o.addOutput(cmd, outputTable, outputYAML, outputJSON)
	return cmd
}

func (o *checkOptions) run(ctx context.Context) error {
	if o.wait < 0 {
		return usageErrorf("--wait %s is negative: give one such as 2m", o.wait)
	}
	found := &report{}
	err := wait.PollUntilContextTimeout(ctx, checkPause, max(o.wait, time.Nanosecond), true,
		func(context.Context) (bool, error) {
			lines, err := o.once(ctx)
			found.Lines, found.State = lines, check.Worst(lines)
			return found.State != check.Fails || o.wait == 0, err
		})
	if err != nil && (!wait.Interrupted(err) || found.Lines == nil) {
		return err
	}
	if o.forPeople() {
		o.print(found.Lines)
	} else if err := o.show(found, nil, ""); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	if found.State == check.Fails {
		failing := slices.DeleteFunc(slices.Clone(found.Lines), func(l check.Line) bool { return l.State != check.Fails })
		return fmt.Errorf("%d of %d lines fail", len(failing), len(found.Lines))
	}
	return nil
}

// once looks at everything once.
func (o *checkOptions) once(ctx context.Context) ([]check.Line, error) {
	timeout, err := o.timeout()
	if err != nil {
		return nil, err
	}
	defer o.close()
	c, err := o.prepare(ctx)
	if err != nil {
		return nil, err
	}
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lines := c.Run(looking)
	if o.race {
		lines = append(lines, c.Race(ctx, lines)...)
	}
	return lines, nil
}

// prepare connects to all servers. A server that cannot be reached is one that does not answer.
func (o *checkOptions) prepare(ctx context.Context) (*check.Check, error) {
	cluster, err := o.cluster()
	if err != nil {
		return nil, err
	}
	if _, err := cluster.kube.Discovery().ServerVersion(); err != nil {
		return nil, explainAPIError("check", err)
	}
	ref, err := parseService(o.service)
	if err != nil {
		return nil, err
	}
	c := &check.Check{
		Kube: cluster.kube, Objects: cluster.reservations, Namespace: ref.Namespace, Version: version.Get().GitVersion,
	}
	if o.serverURL != "" {
		server, err := o.newClient(o.serverURL, "")
		c.Servers = []check.Server{{Name: o.serverURL, Client: server}}
		return c, err
	}
	pods, err := readyPorts(ctx, cluster.kube, ref, true)
	c.Servers = make([]check.Server, len(pods))
	var group sync.WaitGroup
	for i, pod := range pods {
		group.Go(func() { // one of them may be on a node that is gone
			server := &c.Servers[i]
			server.Name = pod.pod
			server.Client, server.Err = o.connectPod(ctx, ref, pod)
		})
	}
	group.Wait()
	if len(pods) == 0 {
		c.Servers = []check.Server{{Name: ref.String(), Err: err}}
	}
	return c, nil
}

// print prints a line for each thing, and what to do below it.
func (o *checkOptions) print(lines []check.Line) {
	for i := range lines {
		line := &lines[i]
		says := line.Says
		if line.Who != "" {
			says = line.Who + ": " + says
		}
		fmt.Fprintf(o.Out, "%-8s %-12s %s\n", line.State, line.Name, oneLine(says))
		if line.Do != "" {
			fmt.Fprintf(o.Out, "%-8s %-12s do: %s\n", "", "", oneLine(line.Do))
		}
	}
}
