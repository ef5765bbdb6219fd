package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/globalreserve/globalreserve/pkg/http/ui"
)

// endWithin is how long answers under way may take when the command ends; those that follow the account never do.
const endWithin = 200 * time.Millisecond

type uiOptions struct {
	command
	port uint16
}

func newUICommand(env *environment) *cobra.Command {
	o := &uiOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve the live page on this machine, with your rights",
		Long: `Serve the live page on 127.0.0.1 until the command is interrupted: who uses what of each node, who waits and why,
what is reserved, and who was refused.

The page is the plugin's own. What it asks goes to the GlobalReserve server as all commands' questions do, with
--ledger-token or --ledger-client-certificate, and only to read. Whoever reaches the port on this machine sees what you
may see.`,
		Example: `  kubectl reserve ui

  # The page on a port of your choice, for a server with TLS and a viewer's token
  kubectl reserve ui --port 8080 --ledger-certificate-authority ca.crt --ledger-token "$(kubectl -n default create token viewer)"`,
		Args: takes("no arguments", cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().Uint16Var(&o.port, "port", 23460, "port of 127.0.0.1 to serve the page on; 0 chooses a free one")
	return cmd
}

func (o *uiOptions) run(ctx context.Context) error {
	if err := o.connectServer(ctx); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(o.port))))
	if err != nil {
		return usageErrorf("the page cannot be served on port %d (give another with --port, or 0 for a free one): %w", o.port,
			err)
	}
	address := listener.Addr().String()
	server := &http.Server{Handler: onlyLocal(address, ui.New(o.server.Proxy())), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(o.Out, "The page is at http://%s/ until you press Ctrl-C.\n", address)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	if server.Shutdown(stop) != nil {
		_ = server.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// onlyLocal serves requests for this machine only: a site can point its own name to 127.0.0.1.
func onlyLocal(address string, next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(address)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != address && r.Host != "localhost:"+port {
			http.Error(w, "ask for "+address, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
