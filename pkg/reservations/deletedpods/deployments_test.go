package deletedpods

import (
	"context"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/globalreserve/globalreserve/test/bubble"
)

// refusing is a network on which nobody listens.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED }

// A server that is stopped while the API server is away must not have to wait for the next attempt to
// reach it, which may be a minute off.
func TestDeploymentsStopAtOnceWithoutAnAPIServer(t *testing.T) {
	// client-go's own error handlers sleep by the time at which the process started, which is another
	// clock than that of the test.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	defer func() { utilruntime.ErrorHandlers = handlers }()
	outages := map[string]time.Duration{"just now": time.Second, "for long": 10 * time.Minute}
	bubble.Each(t, outages, func(t *testing.T, outage time.Duration) {
		client, err := metadata.NewForConfig(&rest.Config{Host: "http://api", Transport: refusing{}, QPS: -1})
		require.NoError(t, err)
		log, lines := test.NewNullLogger()
		watched := NewDeployments(client, log)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			watched.run(ctx)
			close(ended)
		}()
		<-time.After(outage)
		cancel()
		stopped := time.Now()
		<-ended
		require.Zero(t, time.Since(stopped))
		require.NotNil(t, lines.LastEntry())
		require.Equal(t, logrus.WarnLevel, lines.LastEntry().Level)
		require.Contains(t, lines.LastEntry().Message, "connection refused")
	})
}
