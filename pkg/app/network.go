package app

import (
	"context"
	"net"
)

// Network is what a server listens on, and reaches other servers by: that of the machine, or one in memory. Both are
// as net.ListenConfig and net.Dialer have them.
type Network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// machineNetwork is that of the machine.
type machineNetwork struct {
	net.ListenConfig
	net.Dialer
}
