package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/globalreserve/globalreserve/test/clusterload"
	"github.com/globalreserve/globalreserve/test/controlplane"
)

// ownScheduler is the name of the user's own scheduler in the commands of `make cluster`.
const ownScheduler = "my-scheduler"

// runCluster is `make cluster`: an empty cluster for people who write a scheduler, until the context ends.
func runCluster(ctx context.Context, out io.Writer, nodes, cpus int, policyFile string) (err error) {
	if nodes < 1 || cpus < 1 {
		return fmt.Errorf("--nodes %d --cpus %d: give numbers from 1 on", nodes, cpus)
	}
	c, err := startCluster(ctx, out, nodes, cpus, controlplane.Options{Workloads: true})
	if err != nil {
		return ended(ctx, err, false)
	}
	defer func() {
		failed := err != nil && ctx.Err() == nil
		err = errors.Join(ended(ctx, err, false), c.stop(failed))
	}()
	c.out.step("starting GlobalReserve and three schedulers")
	server, err := c.startServer(ctx, clusterload.ServerName, "--policy-file="+policyFile)
	if err != nil {
		return err
	}
	if err := c.startSchedulers(ctx, schedulers{serverURL: server.URL}); err != nil {
		return err
	}
	c.out.step("ready")
	if err := c.tell(server.URL, nodes, cpus); err != nil {
		return err
	}
	<-ctx.Done()
	c.out.line("")
	c.out.line("Stopping.")
	return nil
}

// tell prints all that a scheduler has to know.
func (c *cluster) tell(url string, nodes, cpus int) error {
	c.out.line("")
	c.out.line("An empty cluster of Kubernetes with GlobalReserve, which stays up until Ctrl-C. kwok plays the kubelets.")
	c.out.line("")
	row := func(name, format string, args ...any) { c.out.line("%-11s "+format, append([]any{name}, args...)...) }
	row("nodes", "node-0 to node-%d, with %d CPUs and 64Gi each", nodes-1, cpus)
	row("schedulers", "%s, %s and %s (pods in gangs) run behind GlobalReserve", defaultScheduler, secondScheduler,
		gangScheduler)
	row("", "any other spec.schedulerName is free for yours, such as %s", ownScheduler)
	row("extender",
		"urlPrefix: %s with filterVerb: filter, prioritizeVerb: prioritize, preemptVerb: preempt, bindVerb: bind", url)
	row("reserve", "%s/reserve and %s/unreserve", url, url)
	row("bind", "%s/bind", url)
	row("page", "%s", c.livePage())
	row("API", "%s/v1/nodes and others, described in %s/openapi.yaml", url, url)
	return c.printHints(url, []hint{
		{"kubectl get nodes", ""},
		{"kubectl create deployment hello --image=hello --replicas=3", "placed by " + defaultScheduler},
		{"kubectl rollout status deployment/hello", ""},
		{
			`kubectl run mine --image=mine --overrides='{"spec":{"schedulerName":"` + ownScheduler +
				`","containers":[{"name":"mine","image":"mine","resources":{"requests":{"cpu":"2"}}}]}}'`,
			"waits for your scheduler",
		},
		{"POD='{\"metadata\":{\"namespace\":\"default\",\"name\":\"mine\"}}'", ""},
		{
			`curl -sS -H 'Content-Type: application/json' -d "{\"SchedulerName\":\"` + ownScheduler +
				`\",\"Pods\":[$POD],\"Nodes\":[\"node-0\"],\"Durable\":false,\"TTLSeconds\":60}" $URL/reserve`,
			"keeps its capacity",
		},
		{"POD_UID=$(kubectl get pod mine -o jsonpath='{.metadata.uid}')", ""},
		{`curl -sS -H 'Content-Type: application/json' -d "{\"PodNamespace\":\"default\",\"PodName\":\"mine\",\"PodUID\":\"$POD_UID\",\"Node\":\"node-0\"}" $URL/bind`, "binds it"},
		{"kubectl wait --for=condition=Ready pod/mine", ""},
		{
			"kubectl reserve create kept --cpu 2 --replicas 2 --ttl 10m --selector app=kept --wait",
			"a Reservation, for pods to come",
		},
		{"kubectl get rsv", ""},
		{"kubectl reserve nodes --ledger-url $URL", "what each node offers, and who has it"},
		{"curl -sS $URL/v1/allocations", "every pod's share of a node"},
	})
}
