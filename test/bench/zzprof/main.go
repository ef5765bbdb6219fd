package main

import (
	"context"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/globalreserve/globalreserve/pkg/app"
)

func main() {
	go http.ListenAndServe("127.0.0.1:6060", nil)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := app.DefaultOptions()
	fs := pflag.NewFlagSet("x", pflag.ExitOnError)
	o.AddFlags(fs)
	fs.Parse(os.Args[1:])
	app.Run(ctx, o, os.Stderr)
}
