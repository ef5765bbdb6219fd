package app

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/metrics/tracing"
	"github.com/globalreserve/globalreserve/pkg/steady"
)

// defaultPort is the port GlobalReserve serves on.
const defaultPort = 23456

// Options configures the server; DefaultOptions returns them filled in.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file; empty means the service account of the pod the server runs in.
	Kubeconfig string
	// BindAddress is the IP address to serve plain HTTP on. Empty: it is not served.
	BindAddress string
	// Port to serve on; 0 chooses a free one (see App.Addr).
	Port int
	// AllowInsecureHTTP permits a BindAddress that is not loopback.
	AllowInsecureHTTP bool
	// HostNames are names that clients on loopback have for the server, besides localhost.
	HostNames []string
	// HealthAddress is an address and port for probes and metrics alone. Empty: they are on the other ports only.
	HealthAddress string
	// UIAddress is an address and port for the live page. Empty: it is not served.
	UIAddress string
	// ProfileAddress is an address on loopback and port for profiles of this process. Empty: they are not served.
	ProfileAddress string
	// TracingConfigFile is the path of the file that says where spans are sent. Empty: nothing is traced.
	TracingConfigFile string
	// Secure is for serving over TLS, which the admission webhook needs.
	Secure SecureOptions
	// Election is about which server decides.
	Election ElectionOptions
	// Peers is about how the others reach it.
	Peers PeerOptions
	// LogLevel is debug, info, warn or error; LogFormat is text or json.
	LogLevel, LogFormat string
	// ReservationTTL is how long a reservation lasts that names no time itself, unless the policy file says otherwise.
	ReservationTTL time.Duration
	// FinishedReservationTTL is how long Reservation objects are kept after their end.
	FinishedReservationTTL time.Duration
	// IgnoredResources are resources the ledger does not count, like the
	// ignoredResources of kube-scheduler's NodeResourcesFit: extended resources
	// that a DeviceClass maps to devices, which dynamic resource allocation counts.
	IgnoredResources []string
	// Observe makes the server decide nothing and refuse nothing, and report what it would have refused.
	Observe bool
	// PolicyFile is the path of the policy file; empty means the default policy.
	PolicyFile string
	// BindTimeout bounds one bind, re-reads and repeats included.
	BindTimeout time.Duration
	// ShutdownTimeout is how long a stop waits for requests under way, ShutdownDelay for how long it goes on
	// taking new ones, which are passed on.
	ShutdownTimeout, ShutdownDelay time.Duration
	// CompareInterval is how often the ledger is compared with the watched
	// state of the cluster, FullCompareInterval with a list read live.
	CompareInterval, FullCompareInterval time.Duration
	// Clock is what deadlines run on.
	Clock *steady.Clock
	// Network is how the server is reached, and how it reaches other servers.
	Network Network
	// Tracer is what Run makes of TracingConfigFile. The zero one traces nothing.
	Tracer tracing.Tracer
}

// DefaultOptions returns what the server does when no flag is given.
func DefaultOptions() Options {
	return Options{
		BindAddress:            "127.0.0.1",
		Port:                   defaultPort,
		Secure:                 SecureOptions{BindAddress: "0.0.0.0", Port: defaultSecurePort},
		Election:               defaultElection(),
		Peers:                  PeerOptions{Address: ":0"},
		LogLevel:               "info",
		LogFormat:              "text",
		ReservationTTL:         60 * time.Second,
		FinishedReservationTTL: time.Hour,
		BindTimeout:            8 * time.Second,
		ShutdownTimeout:        25 * time.Second,
		CompareInterval:        30 * time.Second,
		FullCompareInterval:    10 * time.Minute,
		Clock:                  steady.Process,
		Network:                &machineNetwork{},
	}
}

// AddFlags binds the options to command-line flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"path of a kubeconfig file; without it the service account of the pod is used")
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress,
		"IP address to serve plain HTTP on, where everybody who reaches it may do everything; empty for none")
	fs.IntVar(&o.Port, "port", o.Port, "port to serve plain HTTP on; 0 chooses a free one")
	fs.StringSliceVar(&o.HostNames, "host-names", o.HostNames,
		"names, besides localhost, that clients on loopback have for the server over plain HTTP; requests for others are "+
			"refused, since a web site can have its name point to loopback")
	fs.StringVar(&o.HealthAddress, "health-address", o.HealthAddress,
		"address to serve probes and metrics on, over plain HTTP, apart from what decides, such as :23459; empty: on the "+
			"other ports only")
	fs.StringVar(&o.UIAddress, "ui-address", o.UIAddress,
		"address to serve the live page on, which only reads, such as 127.0.0.1:23460; off loopback, or without a "+
			"--bind-address, whoever looks shows a token of the cluster; empty: it is not served")
	fs.StringVar(&o.ProfileAddress, "profile-address", o.ProfileAddress,
		"address on loopback to serve profiles on, under /debug/pprof/, such as 127.0.0.1:23461; empty: they are not served")
	fs.StringVar(&o.TracingConfigFile, "tracing-config-file", o.TracingConfigFile,
		"path of a file with a TracingConfiguration, as kube-apiserver reads it: where spans are sent by OTLP, and of how "+
			"many of a million pods; empty: nothing is traced")
	fs.BoolVar(&o.AllowInsecureHTTP, "allow-insecure-http", o.AllowInsecureHTTP,
		"serve plain HTTP on an address that is not loopback: whoever reaches it can reserve and bind")
	o.Secure.addFlags(fs)
	o.Election.addFlags(fs)
	o.Peers.addFlags(fs)
	fs.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error; debug logs every filter decision")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "text or json")
	fs.DurationVar(&o.ReservationTTL, "reservation-ttl", o.ReservationTTL,
		"how long a reservation lasts that names no time itself")
	fs.DurationVar(&o.FinishedReservationTTL, "finished-reservation-ttl", o.FinishedReservationTTL,
		"how long Reservation objects are kept after their end; those the server made itself go at once")
	fs.StringSliceVar(&o.IgnoredResources, "ignored-resources", o.IgnoredResources,
		"extended resources the ledger does not count")
	fs.BoolVar(&o.Observe, "observe", o.Observe,
		"decide nothing and refuse nothing: carry out the binds that schedulers ask for, and report by /v1/refusals and the "+
			"metric globalreserve_observed_conflicts_total which of them overcommit a node; the server takes part in no "+
			"election and writes nothing else")
	fs.StringVar(&o.PolicyFile, "policy-file", o.PolicyFile, "path of the policy file; it is read again when it changes")
	fs.DurationVar(&o.BindTimeout, "bind-timeout", o.BindTimeout,
		"time limit of one bind; keep it below httpTimeout in the scheduler's configuration")
	fs.DurationVar(&o.ShutdownTimeout, "shutdown-timeout", o.ShutdownTimeout,
		"how long a stop waits for binds and other requests under way")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay", o.ShutdownDelay,
		"for how long a stop goes on taking requests, which are passed on to the next server that decides: as long as "+
			"others may take to learn that this one is gone")
	fs.DurationVar(&o.CompareInterval, "compare-interval", o.CompareInterval,
		"how often the ledger is compared with the watched state of the cluster")
	fs.DurationVar(&o.FullCompareInterval, "full-compare-interval", o.FullCompareInterval,
		"how often the ledger is compared with a list read live from the API server")
}

// Validate returns an error that says, for every option that is wrong, what to give instead.
func (o *Options) Validate() error {
	errs := []error{
		o.validateBindAddress(), validatePort("--port", o.Port), o.Secure.validate(), o.Peers.validate(),
		validateAddress("--health-address", o.HealthAddress), o.validatePage(), o.validateProfile(),
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--reservation-ttl", o.ReservationTTL},
		{"--finished-reservation-ttl", o.FinishedReservationTTL},
		{"--bind-timeout", o.BindTimeout},
		{"--shutdown-timeout", o.ShutdownTimeout},
		{"--compare-interval", o.CompareInterval},
		{"--full-compare-interval", o.FullCompareInterval},
	} {
		if d.value <= 0 {
			errs = append(errs, fmt.Errorf("%s %s must be above 0; give a duration such as 60s", d.flag, d.value))
		}
	}
	if o.ShutdownDelay < 0 || o.ShutdownDelay >= o.ShutdownTimeout {
		errs = append(errs, fmt.Errorf("--shutdown-delay %s must not be negative, and below --shutdown-timeout, %s",
			o.ShutdownDelay, o.ShutdownTimeout))
	}
	errs = append(errs, o.Election.validate(o.BindTimeout))
	for _, name := range o.IgnoredResources {
		if !strings.Contains(name, "/") {
			errs = append(errs,
				fmt.Errorf("--ignored-resources %q is not an extended resource; give names with a domain, such as example.com/gpu",
					name))
		}
	}
	_, err := newLogger(o.LogLevel, o.LogFormat, nil)
	return errors.Join(append(errs, err)...)
}

// validatePort checks the number of a port to listen on.
func validatePort(flag string, port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("%s %d is out of range; give 1 to 65535, or 0 for any free port", flag, port)
	}
	return nil
}

func (o *Options) validateBindAddress() error {
	ip := net.ParseIP(o.BindAddress)
	switch {
	case o.BindAddress == "" && !o.Secure.enabled():
		return errors.New("--bind-address is empty and there is no --tls-cert-file: nobody could ask the server; give one " +
			"of them")
	case o.BindAddress == "":
		return nil
	case ip == nil:
		return fmt.Errorf("--bind-address %q is not an IP address; give one, such as 127.0.0.1", o.BindAddress)
	case !ip.IsLoopback() && !o.AllowInsecureHTTP:
		return fmt.Errorf("--bind-address %s is not loopback and the server speaks plain HTTP: whoever reaches it could "+
			"reserve and bind; serve on 127.0.0.1, or add --allow-insecure-http where the network keeps others out",
			o.BindAddress)
	default:
		return nil
	}
}

func (o *Options) ignoredResources() []v1.ResourceName {
	names := make([]v1.ResourceName, 0, len(o.IgnoredResources))
	for _, name := range o.IgnoredResources {
		names = append(names, v1.ResourceName(name))
	}
	return names
}
