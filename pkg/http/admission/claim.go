package admission

import (
	"context"
	"errors"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/decide"
)

// formerClaim is the part of the old object that counts: its version. The API server lets no write change its name or
// UID.
type formerClaim struct {
	Metadata struct {
		Name            string    `json:"name"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	} `json:"metadata"`
}

// decideClaim decides on the devices that a write gives a ResourceClaim. Taking devices away is always allowed.
func (a *Admission) decideClaim(ctx context.Context, request *admissionv1.AdmissionRequest) (*verdict, error) {
	v := newVerdict(request)
	v.verb, v.kind = claimsVerb, "claim"
	if request.Resource.Group != resourcev1.GroupName || request.Resource.Version != "v1" ||
		request.Resource.Resource != "resourceclaims" ||
		request.SubResource != "status" || request.Operation != admissionv1.Update {
		v.skipped = true
		v.warning = "GlobalReserve decides here on the update of resourceclaims/status of resource.k8s.io/v1 only: " +
			"correct the rules of its webhook configuration"
		return v, nil
	}
	var claim resourcev1.ResourceClaim
	var former formerClaim
	if v.refusal = decode(request.Object.Raw, &claim); v.refusal == nil {
		v.refusal = decode(request.OldObject.Raw, &former)
	}
	if v.refusal != nil {
		return v, nil
	}
	claim.Namespace, claim.Name, claim.UID = request.Namespace, former.Metadata.Name, former.Metadata.UID
	v.ref.Name, v.ref.UID = claim.Name, claim.UID
	switch {
	case claim.Status.Allocation == nil:
		v.skipped = true
		return v, nil
	case claim.Name == "" || claim.UID == "" || len(claim.UID) > maxName:
		v.refusal = invalid("the object under review is a write of no ResourceClaim: oldObject has no metadata.name or " +
			"metadata.uid")
		return v, nil
	}
	err := a.o.Arbiter.AdmitResourceClaim(ctx, &decide.ResourceClaimQuery{
		Claim: &claim, Version: former.Metadata.ResourceVersion, Size: len(request.OldObject.Raw), DryRun: v.dryRun,
	})
	if refused := new(decide.DevicesRefusedError); errors.As(err, &refused) {
		// After a conflict kube-scheduler would write the same again, five times.
		v.refusal = status(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
		return v, nil
	}
	if err != nil {
		err = v.refuse(err)
	}
	return v, err
}
