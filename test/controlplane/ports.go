package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports are taken from below the range the kernel uses for outgoing connections (32768 and up on
// Linux): nobody is given one of these by chance between our choice and the server's bind. The
// range leaves out the product's own default port 23456.
const (
	firstPort    = 24000
	lastPort     = 31999
	portAttempts = 500
)

// ports hands out TCP ports on 127.0.0.1 and holds a file lock on each, so that two harnesses on
// one machine never get the same one. The kernel drops the locks of a process that dies.
type ports struct {
	mu    sync.Mutex // guards locks
	locks []*os.File
}

// take returns a port that is free now and stays ours until release.
func (p *ports) take() (int, error) {
	dir := filepath.Join(os.TempDir(), "globalreserve-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("make the directory for port locks: %w", err)
	}
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := lockFile(filepath.Join(dir, strconv.Itoa(port)))
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("lock port %d: %w", port, err)
		}
		listener, err := listen(port)
		if err != nil {
			lock.Close()
			continue
		}
		listener.Close()
		p.mu.Lock()
		p.locks = append(p.locks, lock)
		p.mu.Unlock()
		return port, nil
	}
	return 0, fmt.Errorf("found no free port between %d and %d in %d attempts",
		firstPort, lastPort, portAttempts)
}

// release gives all ports back. The lock files stay: removing one while another process opens it
// would let two processes hold "the" lock.
func (p *ports) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lock := range p.locks {
		lock.Close()
	}
	p.locks = nil
}

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func listen(port int) (net.Listener, error) {
	var config net.ListenConfig // its context only serves to look up names
	return config.Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
