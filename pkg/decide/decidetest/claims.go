package decidetest

import (
	"context"
	"sync"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/globalreserve/globalreserve/pkg/dra"
)

// NewClaims returns what decides on the ResourceClaims of a cluster with DRA and some objects. It has read them.
func NewClaims(t testing.TB, objects ...runtime.Object) *dra.Controller {
	t.Helper()
	client := fake.NewClientset(objects...)
	client.Resources = []*metav1.APIResourceList{{
		GroupVersion: resourcev1.SchemeGroupVersion.String(), APIResources: []metav1.APIResource{
			{Name: "resourceclaims"},
			{Name: "resourceslices"},
		},
	}}
	log, _ := logtest.NewNullLogger()
	claims := dra.New(dra.Options{
		Client: client, Discovery: client.Discovery(), Recorder: events.NewFakeRecorder(10), Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, claims.Run(ctx)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	require.Eventually(t, func() bool {
		_, err := claims.Grant(ctx, &resourcev1.ResourceClaim{}, 1, 0, true)
		return err == nil
	}, time.Minute, time.Millisecond)
	return claims
}
