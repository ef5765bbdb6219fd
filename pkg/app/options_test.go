package app

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

func TestOptionsValidate(t *testing.T) {
	quickLease := election.Times{Lease: 4 * time.Second, Renew: 3 * time.Second, Retry: time.Second}
	cases := map[string]struct {
		change func(*Options)
		want   string // part of the error; empty for none
	}{
		"defaults":            {change: func(*Options) {}},
		"any free port":       {change: func(o *Options) { o.Port = 0 }},
		"IPv6 loopback":       {change: func(o *Options) { o.BindAddress = "::1" }},
		"open to the network": {change: func(o *Options) { o.BindAddress = "0.0.0.0" }, want: "--allow-insecure-http"},
		"open, and meant so":  {change: func(o *Options) { o.BindAddress, o.AllowInsecureHTTP = "0.0.0.0", true }},
		"nothing to ask":      {change: func(o *Options) { o.BindAddress = "" }, want: "nobody could ask the server"},
		"TLS only": {change: func(o *Options) {
			o.BindAddress, o.Secure.CertFile, o.Secure.KeyFile = "", "c",
				"k"
		}},
		"certificate alone": {change: func(o *Options) { o.Secure.CertFile = "x" }, want: "belong together"},
		"key alone":         {change: func(o *Options) { o.Secure.KeyFile = "x" }, want: "belong together"},
		"TLS on a name": {
			change: func(o *Options) { o.Secure.BindAddress = "localhost" },
			want:   "--secure-bind-address",
		},
		"TLS's port too high": {change: func(o *Options) { o.Secure.Port = 70000 }, want: "--secure-port"},
		"client CA without TLS": {
			change: func(o *Options) { o.Secure.ClientCAFile = "x" },
			want:   "--client-ca-file needs TLS",
		},
		"delay too long": {change: func(o *Options) { o.ShutdownDelay = o.ShutdownTimeout }, want: "--shutdown-delay"},
		"delay negative": {change: func(o *Options) { o.ShutdownDelay = -1 }, want: "--shutdown-delay"},
		"ui address":     {change: func(o *Options) { o.UIAddress = "x" }, want: `--ui-address "x"`},
		"ui address, no TLS": {
			change: func(o *Options) { o.UIAddress = "0.0.0.0:0" },
			want:   "tokens would travel in the clear",
		},
		"profile address": {change: func(o *Options) { o.ProfileAddress = "x" }, want: `--profile-address "x"`},
		"profiles, open": {
			change: func(o *Options) { o.ProfileAddress = "0.0.0.0:0" },
			want:   "--profile-address 0.0.0.0:0 is not loopback",
		},
		"profiles, everywhere": {
			change: func(o *Options) { o.ProfileAddress = ":0" },
			want:   "--profile-address :0 is not loopback",
		},
		"profiles, IPv6":    {change: func(o *Options) { o.ProfileAddress = "[::1]:0" }},
		"health address":    {change: func(o *Options) { o.HealthAddress = "x" }, want: `--health-address "x"`},
		"address is a name": {change: func(o *Options) { o.BindAddress = "localhost" }, want: "is not an IP address"},
		"port too high":     {change: func(o *Options) { o.Port = 65536 }, want: "--port 65536 is out of range"},
		"port negative":     {change: func(o *Options) { o.Port = -1 }, want: "--port -1 is out of range"},
		"no reservation TTL": {
			change: func(o *Options) { o.ReservationTTL = 0 },
			want:   "--reservation-ttl 0s must be above 0",
		},
		"negative bind timeout": {
			change: func(o *Options) { o.BindTimeout = -time.Second },
			want:   "--bind-timeout -1s must be above 0",
		},
		"unknown level":     {change: func(o *Options) { o.LogLevel = "verbose" }, want: "give debug, info, warn or error"},
		"ignored resources": {change: func(o *Options) { o.IgnoredResources = []string{"example.com/gpu"} }},
		"cpu ignored": {
			change: func(o *Options) { o.IgnoredResources = []string{"cpu"} },
			want:   `--ignored-resources "cpu"`,
		},
		"quick lease": {change: func(o *Options) { o.Election.Times = quickLease }},
		"bind outlasts lease": {
			change: func(o *Options) { o.Election.Times, o.BindTimeout = quickLease, 10*time.Second },
			want:   "--bind-timeout and --leader-elect-lease-duration",
		},
		"renewed for too long": {
			change: func(o *Options) { o.Election.Times.Renew = 15 * time.Second },
			want:   "-renew-deadline",
		},
		"no lease's namespace": {
			change: func(o *Options) { o.Election.Namespace = "" },
			want:   "--leader-elect-resource-namespace is empty",
		},
		"unknown format": {change: func(o *Options) { o.LogFormat = "xml" }, want: "give text or json"},
		"no peers":       {change: func(o *Options) { o.Peers.Address = "" }},
		"peers":          {change: func(o *Options) { o.Peers = PeerOptions{"0.0.0.0:23458", "https://a.example:1/"} }},
		"peer address": {
			change: func(o *Options) { o.Peers.Address = "somewhere" },
			want:   `--peer-address "somewhere"`,
		},
		"peer address a name": {
			change: func(o *Options) { o.Peers.Address = "localhost:1" },
			want:   "is not an IP address and a port",
		},
		"peer port": {change: func(o *Options) { o.Peers.Address = ":65536" }, want: "--peer-address"},
		"peer URL": {
			change: func(o *Options) { o.Peers.URL = "http://a:1" },
			want:   "is not of the form https://host:port",
		},
		"peer URL for nothing": {
			change: func(o *Options) { o.Peers = PeerOptions{"", "https://a:1"} },
			want:   "needs a --peer-address",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			tc.change(&o)
			err := o.Validate()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestOptionsValidateNamesAllMistakes(t *testing.T) {
	err := (&Options{BindAddress: "x", Port: -1}).Validate()
	for _, flag := range []string{
		"--bind-address", "--port", "--reservation-ttl", "--bind-timeout", "--shutdown-timeout",
		"--compare-interval", "--full-compare-interval", "--log-format",
	} {
		assert.ErrorContains(t, err, flag)
	}
}

func TestOptionsFlags(t *testing.T) {
	o := DefaultOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(fs)
	require.NoError(t, fs.Parse([]string{
		"--port=1", "--bind-address=::1", "--log-level=debug", "--log-format=json",
		"--leader-elect=false", "--leader-elect-lease-duration=4s", "--reservation-ttl=5s", "--kubeconfig=k",
		"--policy-file=p",
	}))
	want := DefaultOptions()
	want.Port, want.BindAddress, want.LogLevel, want.LogFormat = 1, "::1", "debug", "json"
	want.Election.LeaderElect, want.Election.Times.Lease = false, 4*time.Second
	want.ReservationTTL, want.Kubeconfig, want.PolicyFile = 5*time.Second, "k", "p"
	assert.Equal(t, want, o)
	assert.Equal(t, 23456, DefaultOptions().Port)
	assert.Equal(t, "127.0.0.1", DefaultOptions().BindAddress)
	assert.Equal(t, 60*time.Second, DefaultOptions().ReservationTTL)
}
