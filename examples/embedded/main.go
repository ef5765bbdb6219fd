// Command embedded is a gang scheduler that has the whole GlobalReserve server in its own process. It
// reserves and binds by Go calls, without a network, while every other scheduler of the cluster
// reaches the same ledger on the server's port. README.md says how to run it.
//
// The scheduling is that of examples/gangscheduler, unchanged: it is written for an interface, and does not know where
// the server is. What is new is here: a program that starts the server, uses it and stops it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/globalreserve/globalreserve/examples/gangscheduler/gangsched"
	"github.com/globalreserve/globalreserve/pkg/app"
)

func main() {
	options := app.DefaultOptions()
	// Only because this program wants the server's flags: a program may fill in the options itself.
	options.AddFlags(pflag.CommandLine)
	name := pflag.String("scheduler-name", "embedded-scheduler",
		"place the gangs of pods that have this as their schedulerName")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, options, *name)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "embedded:", err)
		os.Exit(1)
	}
}

// run serves and schedules until ctx ends, or one of both fails.
func run(ctx context.Context, options app.Options, name string) (err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = options.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the cluster: %w; give --kubeconfig", err)
	}
	clients, err := app.NewClients(config)
	if err != nil {
		return err
	}
	server, err := app.New(options, clients, os.Stderr)
	if err != nil {
		return err
	}
	// What runs in the background is ended by Stop, which needs it: it must outlive ctx.
	if err := server.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer func() {
		// Binds under way are finished, although ctx has ended.
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), options.ShutdownTimeout)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	// Before that the ledger is not complete, and every call would return an error that says so.
	if err := server.WaitReady(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	return schedule(ctx, server, clients.Core, name)
}

// schedule runs the gang scheduler on a server in this process.
func schedule(ctx context.Context, server *app.App, api kubernetes.Interface, name string) error {
	scheduler, err := gangsched.New(gangsched.Options{
		Client: api, SchedulerName: name,
		GlobalReserve: server.Reserver(),
	})
	if err != nil {
		return err
	}
	// Whichever fails first ends the other.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- server.Wait(ctx)
		cancel()
	}()
	err = ignoreEnd(ctx, scheduler.Run(ctx))
	cancel()
	return errors.Join(err, <-served)
}

// ignoreEnd drops an error that comes after ctx has ended: that end was asked for.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
