package follow

import (
	"context"
	"errors"
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRemedy(t *testing.T) {
	quota := schema.GroupResource{Resource: "resourcequotas"}
	for want, err := range map[string]error{
		"the API server denies this server resourcequotas " +
			`(resourcequotas is forbidden: User "robot" cannot list): apply manifests/base/rbac.yaml`: apierrors.NewForbidden(
			quota, "", errors.New(`User "robot" cannot list`),
		),
		`the API server knows no resourcequotas (resourcequotas "" not found): apply manifests/crd`: apierrors.NewNotFound(quota, ""),
		`resourcequotas: no route`: errors.New("no route"),
	} {
		assert.Equal(t, want, remedy("resourcequotas", err))
	}
}

// A definition that is deleted under a running server is named, with what brings it back.
func TestDeletedDefinitionIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(part func(context.Context) error)) {
		c := newCluster()
		w := c.watch()
		log, told := logtest.NewNullLogger()
		w.log = log
		nothing := func(context.Context) {}
		run(c.kinds.Run)
		run(func(ctx context.Context) error { return w.Run(ctx, nothing, nothing) })
		require.Empty(t, told.AllEntries())
		c.installed.Store(false)
		pass(askAgain)
		require.NotNil(t, told.LastEntry())
		assert.Equal(t, "the cluster has no definition of configmaps and secrets: running without; "+
			"to have them: kubectl apply -k manifests/crd", told.LastEntry().Message)
	})
}

// An object that was deleted and made again while nobody watched is another one: the first is gone.
func TestReplacedUnseen(t *testing.T) {
	inBubble(t, func(t *testing.T, run func(part func(context.Context) error)) {
		first := configMap("a")
		first.UID = "first"
		c := newCluster(first)
		w := c.watch()
		nothing := func(context.Context) {}
		run(c.kinds.Run)
		run(func(ctx context.Context) error { return w.Run(ctx, nothing, nothing) })
		require.Equal(t, []string{"listed a"}, c.news())
		second := configMap("a")
		second.UID = "second"
		_, err := c.CoreV1().ConfigMaps("ns").Update(t.Context(), second, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Equal(t, []string{"gone a", "set a"}, c.news())
	})
}
