package fakekube

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/test/apianswers"
)

// roundTrip implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server answers as kube-apiserver does.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcd := NewEtcd()
		s, err := New(etcd, nil, nil)
		require.NoError(t, err)
		defer func() { s.Close() }()
		got, err := apianswers.Play(t.Context(), apianswers.Server{
			Config: &rest.Config{
				Host: "http://kube-apiserver",
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return s.Config("tester").Transport.RoundTrip(r)
				}),
			},
			Compact: func(context.Context) error { etcd.Compact(); return nil },
			Restart: func(context.Context) error {
				s.Close()
				next, err := New(etcd, nil, nil)
				if err == nil {
					s = next
				}
				return err
			},
		}, apianswers.Recorded)
		require.NoError(t, err)
		assert.Equal(t, apianswers.Recorded, got)
	})
}
