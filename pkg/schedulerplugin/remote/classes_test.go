package remote

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/globalreserve/globalreserve/test/background"
)

// What DeviceClasses map is told once all of them are known, and again when they change or go.
func TestFollowClasses(t *testing.T) {
	class := func(resource string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &resource},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(class("example.com/gpu"))
		factory := informers.NewSharedInformerFactory(client, 0)
		var told [][]string
		listed, err := followClasses(factory.Resource().V1().DeviceClasses().Informer(), func(names []string) { told = append(told, names) })
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer factory.Shutdown()
		defer cancel()
		stop := background.Run(t, listed)
		factory.Start(ctx.Done())
		synctest.Wait()
		stop()

		classes := client.ResourceV1().DeviceClasses()
		_, err = classes.Update(ctx, class("example.com/other"), metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, classes.Delete(ctx, "c", metav1.DeleteOptions{}))
		synctest.Wait()
		own := resourcev1.ResourceDeviceClassPrefix + "c"
		assert.Equal(t, [][]string{{own, "example.com/gpu"}, {own, "example.com/other"}, nil}, told)
	})
}
