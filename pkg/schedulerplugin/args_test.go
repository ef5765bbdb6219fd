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
