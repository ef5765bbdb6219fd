package schedulerplugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestArgs(t *testing.T) {
	cases := map[string]struct {
		json string
		want func(t *testing.T, a *Args)
	}{
		"the least of mode local": {`{"mode":"local"}`, func(t *testing.T, a *Args) {
			assert.Equal(t, time.Minute, a.ReservationTTL.Duration)
			assert.Empty(t, a.FailurePolicy)
		}},
		"the least of mode remote": {`{"mode":"remote","remoteURL":"http://127.0.0.1:23456"}`, func(t *testing.T, a *Args) {
			assert.Equal(t, Fail, a.FailurePolicy)
		}},
		"a server": {`{"mode":"local","server":{"port":0,"bindTimeout":"4s","tlsCertFile":"c","tlsPrivateKeyFile":"k"}}`, func(t *testing.T, a *Args) {
			require.NotNil(t, a.Server.Port)
			assert.Zero(t, *a.Server.Port)
			assert.Equal(t, 4*time.Second, a.Server.BindTimeout.Duration)
		}},
		"all of mode remote": {`{"mode":"remote","remoteURL":"https://server:23457","failurePolicy":"Ignore","caFile":"ca",
			"certFile":"c","keyFile":"k","reservationTTL":"5s","ignoredResources":["example.com/gpu"]}`, func(t *testing.T, a *Args) {
			assert.Equal(t, Ignore, a.FailurePolicy)
			assert.Equal(t, 5*time.Second, a.ReservationTTL.Duration)
			assert.Equal(t, []v1.ResourceName{"example.com/gpu"}, a.IgnoredResources)
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
		"none":                              {``, "mode is missing"},
		"no mode":                           {`{}`, `give "local" for a ledger in this scheduler`},
		"an unknown mode":                   {`{"mode":"both"}`, `mode "both" is unknown: give "local" or "remote"`},
		"an unknown field":                  {`{"mode":"local","ports":1}`, `unknown field "ports"`},
		"another spelling":                  {`{"Mode":"local"}`, `unknown field "Mode"`},
		"no JSON":                           {`mode`, "cannot be read"},
		"a duration without a unit":         {`{"mode":"local","reservationTTL":5}`, "cannot be read"},
		"a short TTL":                       {`{"mode":"local","reservationTTL":"10ms"}`, "reservationTTL 10ms is too short"},
		"a URL in mode local":               {`{"mode":"local","remoteURL":"http://h"}`, "remoteURL is for mode remote"},
		"a policy in mode local":            {`{"mode":"local","failurePolicy":"Fail"}`, "failurePolicy is for mode remote"},
		"no URL in mode remote":             {`{"mode":"remote"}`, "remoteURL is missing"},
		"a URL without a scheme":            {`{"mode":"remote","remoteURL":"host:1"}`, "is not the address of a server"},
		"a policy that is none":             {`{"mode":"remote","remoteURL":"http://h","failurePolicy":"Maybe"}`, "give Fail or Ignore"},
		"a certificate without key":         {`{"mode":"remote","remoteURL":"https://h","certFile":"c"}`, "belong together"},
		"TLS files for http":                {`{"mode":"remote","remoteURL":"http://h","caFile":"c"}`, "need a remoteURL with https"},
		"a server's options in mode remote": {`{"mode":"remote","remoteURL":"http://h","server":{"port":1}}`, "server is for mode local"},
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
