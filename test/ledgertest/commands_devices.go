package ledgertest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/resources"
)

// devices is devices node, then a line per device: id example.com/gpu model=a unschedulable name=d0. It is named by its
// ID unless it has a name.
func (r *transcript) devices(c *words, lines []*words) []string {
	var list []devices.Device
	for _, line := range lines {
		list = append(list, devices.Device{
			Name: cmp.Or(line.value("name"), line.word(0)), ID: line.word(0), Resource: line.word(1),
			Properties: map[string]string{"model": line.value("model")}, Unschedulable: line.flag("unschedulable"),
		})
	}
	return yesNo(r.ledger.ObserveDevices(c.word(1), list), "changed", "nothing new")
}

// claimed reads what a pod, or a slot, asks for: claims=c1:example.com/gpu,c2@2:example.com/gpu*2:a is one device, and
// two of model a. The UID of a claim is 1 unless given. A slot leaves out the names of claims that it asks for none in
// particular. claims-error= says why the claims cannot be used, and given=id0,id1 which devices somebody has.
func (w *words) claimed() *ledger.DeviceRequest {
	claims, problem, given := w.list("claims"), w.value("claims-error"), w.value("given")
	if len(claims) == 0 && given == "" {
		return nil
	}
	asked := &ledger.DeviceRequest{Err: strings.ReplaceAll(problem, "_", " "), Given: given}
	named := false
	for _, text := range claims {
		name, text, _ := strings.Cut(text, ":")
		resource, model, _ := strings.Cut(text, ":")
		ref := ledger.DeviceClaimRef{}
		if name != "" {
			named = true
			ref = ledger.DeviceClaimRef{Namespace: "ns", Name: name, UID: "1"}
			if of, uid, ok := strings.Cut(name, "@"); ok {
				ref.Name, ref.UID = of, types.UID(uid)
			}
		}
		asked.Claims = append(asked.Claims, ref)
		if problem == "" {
			asked.Requests = append(asked.Requests, w.device(resource, model))
		}
	}
	if !named {
		asked.Claims = nil
	}
	return asked
}

// device reads example.com/gpu*2 of a model.
func (w *words) device(resource, model string) *devices.Request {
	spec := &v1alpha1.ExtendedResourceClaimSpec{ResourceName: resource, Count: 1}
	if of, count, ok := strings.Cut(resource, "*"); ok {
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil {
			w.fail("%s: want example.com/gpu*2", resource)
		}
		spec.ResourceName, spec.Count = of, int32(n)
	}
	if model != "" {
		spec.Selector = &v1alpha1.DeviceSelector{MatchProperties: map[string]string{"model": model}}
	}
	request, err := devices.Compile(nil, spec)
	if err != nil {
		w.fail("%s: %v", resource, err)
	}
	return request
}

// columns reads a list of resources as their columns.
func (w *words) columns(table *resources.Table, key string) (columns []resources.Column) {
	for _, name := range w.list(key) {
		column, _ := table.Offer(v1.ResourceName(name))
		columns = append(columns, column)
	}
	return columns
}

// givenText tells which devices somebody has: " with c1:id0,id1", and "?" where nobody knows of which resource.
func givenText(given []ledger.GivenDevices) string {
	var parts []string
	for _, g := range given {
		text := g.Claim.Name + ":" + strings.Join(g.IDs, ",")
		if g.Resource == "" {
			text += "?"
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return ""
	}
	return " with " + strings.Join(parts, " ")
}

// deviceText tells who has a device of a node.
func deviceText(node string, d *ledger.DeviceView) string {
	text := fmt.Sprintf("device %s of %s:", d.Name, node)
	if d.Free {
		text += " free"
	}
	for _, pod := range d.Pods {
		text += " " + podText(pod)
	}
	return text + with(" kept by ", d.Slot)
}
