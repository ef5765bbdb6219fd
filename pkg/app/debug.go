package app

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// about says whose account this is, and what it is complete in.
func (a *App) about() reserver.DumpAnswer {
	return reserver.DumpAnswer{
		Server: a.elector.Identity(), Undecided: a.health.undecided(), Pods: a.cache.Synced(), Objects: a.synced(),
		IgnoredResources: a.options.IgnoredResources,
	}
}

// debug writes the account to the log whenever this process gets SIGUSR2, as kube-scheduler does with its cache.
func (a *App) debug(ctx context.Context) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	defer signal.Stop(signals)
	return a.debugger.Run(ctx, signals)
}
