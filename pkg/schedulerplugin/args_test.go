package schedulerplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/globalreserve/globalreserve/pkg/app"
	"github.com/globalreserve/globalreserve/pkg/kube/election"
)

func TestArgs(t *testing.T) {
	cases := map[string]struct {
		json string
		want func(t *testing.T, a *Args)
	}{
		"the least": {`{}`, func(t *testing.T, a *Args) {
			assert.Equal(t, time.Minute, a.ReservationTTL.Duration)
		}},
		"none": {``, func(t *testing.T, a *Args) {
			assert.Equal(t, time.Minute, a.ReservationTTL.Duration)
		}},
		"all": {`{"reservationTTL":"5s","ignoredResources":["example.com/gpu"],
			"server":{"port":0,"bindTimeout":"4s","tlsCertFile":"c","tlsPrivateKeyFile":"k",
			"uiAddress":"127.0.0.1:0","hostNames":["h"]}}`, func(t *testing.T, a *Args) {
			assert.Equal(t, 5*time.Second, a.ReservationTTL.Duration)
			assert.Equal(t, []v1.ResourceName{"example.com/gpu"}, a.IgnoredResources)
			require.NotNil(t, a.Server.Port)
			assert.Zero(t, *a.Server.Port)
			assert.Equal(t, 4*time.Second, a.Server.BindTimeout.Duration)
			assert.Equal(t, "127.0.0.1:0", a.Server.UIAddress)
			assert.Equal(t, []string{"h"}, a.Server.HostNames)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			args, err := ReadArgs(&runtime.Unknown{Raw: []byte(tc.json)})
			require.NoError(t, err)
			tc.want(t, args)
		})
	}
}

func TestWrongArgs(t *testing.T) {
	cases := map[string]struct{ json, want string }{
		"an unknown field":          {`{"ports":1}`, `unknown field "ports"`},
		"a mode":                    {`{"mode":"local"}`, `unknown field "mode"`},
		"another spelling":          {`{"Server":{}}`, `unknown field "Server"`},
		"no JSON":                   {`mode`, "cannot be read"},
		"a duration without a unit": {`{"reservationTTL":5}`, "cannot be read"},
		"a short TTL":               {`{"reservationTTL":"10ms"}`, "reservationTTL 10ms is too short"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ReadArgs(&runtime.Unknown{Raw: []byte(tc.json)})
			assert.ErrorContains(t, err, tc.want)
		})
	}
	_, err := ReadArgs(&v1.Pod{})
	assert.ErrorContains(t, err, "give them as a mapping")
}

func TestServerOptions(t *testing.T) {
	assert.Equal(t, app.DefaultOptions(), serverOptions(&Args{}), "what is left out is as for the server")

	got := serverOptions(&Args{
		IgnoredResources: []v1.ResourceName{"example.com/gpu"},
		Server: ServerArgs{
			BindAddress: ptr.To(""), Port: ptr.To(0), AllowInsecureHTTP: true,
			ReservationTTL: metav1.Duration{Duration: time.Second},
			BindTimeout:    metav1.Duration{Duration: 2 * time.Second}, PolicyFile: "policy", LogLevel: "debug",
			LogFormat:   "json",
			TLSCertFile: "cert", TLSPrivateKeyFile: "key", SecureBindAddress: "127.0.0.1", SecurePort: ptr.To(1),
			ClientCAFile: "ca", AdmissionClientNames: []string{"api"}, AdmissionWarn: true, HealthAddress: ":1",
			UIAddress: "127.0.0.1:2", HostNames: []string{"host"},
			LeaseNamespace: "here", LeaseDuration: metav1.Duration{Duration: 4 * time.Second},
			LeaseRenewDeadline: metav1.Duration{Duration: 3 * time.Second},
			LeaseRetryPeriod:   metav1.Duration{Duration: time.Second},
		},
	})
	want := app.DefaultOptions()
	want.BindAddress, want.Port, want.AllowInsecureHTTP, want.ReservationTTL = "", 0, true, time.Second
	want.HealthAddress, want.UIAddress, want.HostNames = ":1", "127.0.0.1:2", []string{"host"}
	want.BindTimeout, want.PolicyFile, want.LogLevel, want.LogFormat = 2*time.Second, "policy", "debug", "json"
	want.Secure = app.SecureOptions{
		CertFile: "cert", KeyFile: "key", BindAddress: "127.0.0.1", Port: 1, ClientCAFile: "ca",
		AdmissionClients: []string{"api"}, AdmissionWarn: true,
	}
	want.Election.Namespace, want.Election.Times = "here", election.Times{
		Lease: 4 * time.Second, Renew: 3 * time.Second,
		Retry: time.Second,
	}
	want.IgnoredResources = []string{"example.com/gpu"}
	assert.Equal(t, want, got)
}
