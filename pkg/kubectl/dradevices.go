package kubectl

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/dra/account"
)

// phaseDouble is shown of a DRA device of which more is allocated than there is.
const phaseDouble = "Double"

// readDRA returns the DRA devices, none where the cluster has no DRA, or the user may not see them. They are called
// driver/pool/device.
func readDRA(ctx context.Context, cluster *cluster) ([]deviceAnswer, error) {
	client := cluster.kube.ResourceV1()
	published, err := client.ResourceSlices().List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explainAPIError("list ResourceSlices", err)
	}
	claims, err := client.ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explainAPIError("list ResourceClaims", err)
	}
	known, pods := account.New(), map[string]string{} // by the namespace/name of their claim
	for i := range published.Items {
		known.ObserveSlice(&published.Items[i])
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		known.ObserveClaim(claim)
		pods[claim.Namespace+"/"+claim.Name] = reservedFor(claim)
	}
	var answers []deviceAnswer
	for _, d := range known.AppendDevices(nil) {
		answers = append(answers, draAnswer(&d, pods))
	}
	return answers, nil
}

func draAnswer(d *account.DeviceState, pods map[string]string) deviceAnswer {
	answer := deviceAnswer{
		Name: d.String(), Node: d.Node, Resource: d.Driver, ID: d.Pool + "/" + d.Name,
		Phase: string(v1alpha1.ExtendedResourceAvailable),
	}
	var owners, users []string
	for _, o := range d.Owners {
		owners = append(owners, o.String())
		if pod := pods[o.String()]; pod != "" {
			users = append(users, pod)
		}
	}
	answer.Claim, answer.Pod = strings.Join(owners, ","), strings.Join(users, ",")
	switch {
	case d.Double:
		answer.Phase, answer.Reason = phaseDouble, "MoreIsAllocatedThanThereIs"
	case len(owners) > 0 && d.Shareable:
		answer.Phase = "Shared"
	case len(owners) > 0:
		answer.Phase = string(v1alpha1.ExtendedResourceBound)
	}
	if !d.Published {
		answer.Reason = "InNoResourceSlice"
	}
	return answer
}

// reservedFor names the pods that a claim is reserved for.
func reservedFor(claim *resourcev1.ResourceClaim) string {
	var names []string
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			names = append(names, r.Name)
		}
	}
	return strings.Join(names, ",")
}
