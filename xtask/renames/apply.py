#!/usr/bin/env python3
"""Applies rename tables, guided by rustc's errors. usage: apply.py ROOT crate[,crate...] [--defs-only|--check-only]"""
import sys, re, os, json, subprocess, glob, collections
ROOT=sys.argv[1]; CRATES=sys.argv[2].split(','); MODE=sys.argv[3] if len(sys.argv)>3 else ''
TABLES=os.path.dirname(os.path.abspath(__file__))
def crate_dir(c): return os.path.join(ROOT,'xtask') if c=='xtask' else os.path.join(ROOT,'crates',c)
TOK=re.compile(rb'''//[^\n]*|/\*.*?\*/|b?r(?P<h>\#*)".*?"(?P=h)|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'|'[A-Za-z_][A-Za-z0-9_]*|(?:r\#)?[A-Za-z_][A-Za-z0-9_]*|\d[\w.]*|\s+|.''',re.S)
IDENT=re.compile(rb'^(r#)?[A-Za-z_][A-Za-z0-9_]*$')
def tokens(src):
    out=[]
    for m in TOK.finditer(src):
        out.append((m.start(),m.end(),m.group(0)))
    return out
def idents(src):
    return [(a,b,t) for a,b,t in tokens(src) if IDENT.match(t)]
def read(p): return open(p,'rb').read()
def write(p,s): open(p,'wb').write(s)
rows=[]
def load(c):
    p=f'{TABLES}/{c}.tsv'
    if not os.path.exists(p): return
    for n,l in enumerate(open(p)):
        l=l.rstrip('\n')
        if not l.strip() or l.startswith('#'): continue
        f=l.split('\t')
        if len(f)<5: print('BAD ROW',c,n,l); continue
        rows.append(dict(crate=c,kind=f[0].strip(),file=f[1].strip(),owner=f[2].strip(),old=f[3].strip(),new=f[4].strip(),note=f[5] if len(f)>5 else ''))
for t in sorted(glob.glob(TABLES+'/*.tsv')): load(os.path.basename(t)[:-4])
byold=collections.defaultdict(list)
for r in rows: byold[r['old']].append(r)

def files_of(c): return [p for p in glob.glob(crate_dir(c)+'/**/*.rs',recursive=True) if '/target/' not in p]

def sub_span(src,a,b,new): return src[:a]+new+src[b:]

def block_of(src,toks,pos):
    """innermost fn containing pos: returns (start,end) from 'fn' token to closing brace"""
    best=None
    for i,(a,b,t) in enumerate(toks):
        if t==b'fn' and a<=pos:
            depth=0; j=i; opened=False
            while j<len(toks):
                x=toks[j][2]
                if x==b'{': depth+=1; opened=True
                elif x==b'}':
                    depth-=1
                    if opened and depth==0: break
                elif x==b';' and not opened and depth==0:
                    # trait fn without body (ignore ; in array types roughly)
                    break
                j+=1
            if j<len(toks) and toks[j][1]>=pos: best=(a,toks[j][1])
    return best

def find_def(src,r):
    """offsets of the defining identifier(s)"""
    old=r['old'].encode(); k=r['kind']; toks=[t for t in tokens(src) if not t[2].isspace() and not t[2].startswith(b'//') and not t[2].startswith(b'/*')]
    res=[]
    def owner_ranges(owner):
        rng=[]
        for i,(a,b,t) in enumerate(toks):
            if t in (b'struct',b'enum',b'trait',b'impl',b'union') :
                # collect header tokens until { or ; or (
                j=i+1; hdr=[]
                while j<len(toks) and toks[j][2] not in (b'{',b';'):
                    if t in (b'struct',b'union') and toks[j][2]==b'(' : break
                    hdr.append(toks[j][2]); j+=1
                if j>=len(toks) or toks[j][2] not in (b'{',b'('): continue
                names=hdr
                if t==b'impl' and b'for' in hdr:
                    # trait impl: belongs to the type and trait
                    pass
                if owner.encode() not in names: continue
                o=toks[j][2]; c={b'{':b'}',b'(':b')'}[o]
                d=0;m=j
                while m<len(toks):
                    if toks[m][2]==o: d+=1
                    elif toks[m][2]==c:
                        d-=1
                        if d==0: break
                    m+=1
                rng.append((j,m,t))
        return rng
    for i,(a,b,t) in enumerate(toks):
        if t!=old: continue
        p=toks[i-1][2] if i else b''; n=toks[i+1][2] if i+1<len(toks) else b''
        if k=='type' and p in (b'struct',b'enum',b'trait',b'type',b'union'): res.append((a,b))
        elif k in('fn','test') and p==b'fn': res.append((a,b))
        elif k=='const' and p in (b'const',b'static',b'mut'): res.append((a,b))
    if k in ('method','variant','field') or (k=='const' and r['owner']!='-'):
        owner=r['owner']; sub=None
        if '::' in owner: owner,sub=owner.split('::',1)
        rs=owner_ranges(owner)
        res2=[]
        for j,m,t in rs:
            for x in range(j+1,m):
                a,b,tt=toks[x]
                if tt!=old: continue
                p=toks[x-1][2]; n=toks[x+1][2]
                if k=='method' and p==b'fn': res2.append((a,b))
                elif k=='const' and p==b'const': res2.append((a,b))
                elif k=='variant' and t==b'enum' and (p in (b'{',b',',b']') or x==j+1) and n in (b',',b'}',b'(',b'{',b'='): res2.append((a,b))
                elif k=='field' and t in(b'struct',b'enum',b'union') and n==b':' and toks[x+2][2]!=b':': res2.append((a,b))
        if k!='const' or res2: res=res2
    return res

def rename_defs(c):
    misses=[]
    for r in rows:
        if r['crate']!=c or r['kind'] in ('mod','param','crate','feature'): continue
        p=os.path.join(crate_dir(c),r['file'])
        if not os.path.exists(p): misses.append((r,'no file')); continue
        src=read(p); d=find_def(src,r)
        if not d: misses.append((r,'no def')); continue
        for a,b in sorted(d,reverse=True): src=sub_span(src,a,b,r['new'].encode())
        # same-file doc links and self-evident uses are left to the guided pass, except types which we replace in the file
        write(p,src)
    for r,w in misses: print('MISS',w,r['crate'],r['kind'],r['file'],r['owner'],r['old'],'->',r['new'])

def rename_params(c):
    for r in rows:
        if r['crate']!=c or r['kind']!='param': continue
        p=os.path.join(crate_dir(c),r['file'])
        if not os.path.exists(p): continue
        fn=r['owner'].split('::')[-1]
        # renamed functions
        cands={fn.encode()}|{x['new'].encode() for x in byold.get(fn,[]) if x['crate']==c}
        src=read(p); toks=tokens(src); sig=[t for t in toks if not t[2].isspace() and not t[2].startswith(b'//')]
        edits=[]; blocks=[]
        for i,(a,b,t) in enumerate(sig):
            if t==b'fn' and sig[i+1][2] in cands:
                blk=block_of(src,sig,sig[i+1][1])
                if not blk: continue
                blocks.append(blk)
                for j in range(i,len(sig)):
                    x=sig[j]
                    if x[0]>=blk[1]: break
                    if x[2]==r['old'].encode() and sig[j-1][2]!=b'.' :
                        nxt=sig[j+1][2]; prv=sig[j-1][2]
                        if (nxt in(b'(',b'!') and not (nxt==b'!' and sig[j+2][2]==b'=')) or (nxt==b':' and sig[j+2][2]==b':'): continue
                        edits.append((x[0],x[1]))
        for a,b,t in toks:
            if t[:1] in(b'"',b'r',b'b') and b'"' in t and any(blk[0]<=a<blk[1] for blk in blocks):
                for m in re.finditer(rb'(?<!\{)\{('+r['old'].encode()+rb')(?=[:}])',t): edits.append((a+m.start(1),a+m.end(1)))
        for a,b in sorted(set(edits),reverse=True): src=sub_span(src,a,b,r['new'].encode())
        write(p,src)

def rename_mods(c):
    for r in rows:
        if r['crate']!=c or r['kind']!='mod': continue
        p=os.path.join(crate_dir(c),r['file'])
        if not os.path.exists(p): print('MISS mod',r); continue
        new=r['new']; dst=os.path.join(os.path.dirname(p),new+'.rs')
        os.makedirs(os.path.dirname(dst),exist_ok=True)
        subprocess.run(['git','mv',p,dst],cwd=ROOT,check=True)
        folder=p[:-3]
        if os.path.isdir(folder): subprocess.run(['git','mv',folder,dst[:-3]],cwd=ROOT,check=True)
        MOVED[p]=dst; print('moved',p,'->',dst)

KINDS={'E0412':('type',),'E0404':('type',),'E0405':('type',),'E0422':('type','variant'),'E0574':('type','variant'),'E0531':('type','variant','const'),
 'E0432':None,'E0433':None,'E0425':('fn','const','param','test','variant','type'),'E0599':('method','variant','const','fn'),'E0560':('field',),'E0559':('field',),'E0609':('field',),'E0610':('field',),'E0026':('field',),'E0407':('method',),'E0437':('type',),'E0438':('const',),'E0423':None,'E0532':None,'E0615':('method',),'E0616':('field',),'E0576':None,'E0220':None,'E0603':None,'E0282':None,'E0583':None,'E0411':None,'E0424':None,'E0408':None,'E0614':None,'E0573':None,'E0061':None}
_META=None
def deps_of(c):
    global _META
    if _META is None:
        m=json.loads(subprocess.check_output(['cargo','metadata','--no-deps','--format-version','1','--locked'],cwd=ROOT,text=True))
        names={q['name'] for q in m['packages']}
        _META={q['name']:{x['name'] for x in q['dependencies'] if x['name'] in names} for q in m['packages']}
    seen=set(); todo=[c]
    while todo:
        x=todo.pop()
        if x in seen: continue
        seen.add(x); todo+=list(_META.get(x,()))
    return seen
MOVED={}
def now_path(r):
    p=os.path.join(crate_dir(r['crate']),r['file'])
    best=p
    for old,new in MOVED.items():
        if p==old: best=new
        elif p.startswith(old[:-3]+'/'): best=new[:-3]+p[len(old)-3:]
    return best
def check(c):
    out=subprocess.run(['cargo','check','-p',c,'--all-targets','--message-format=json','--locked'],cwd=ROOT,capture_output=True,text=True)
    msgs=[]
    for l in out.stdout.splitlines():
        try: m=json.loads(l)
        except: continue
        if m.get('reason')!='compiler-message': continue
        d=m['message']
        if d['level']!='error': continue
        msgs.append(d)
    return msgs,out
def guided(c,limit=25):
    for it in range(limit):
        msgs,out=check(c)
        if not msgs:
            print(c,'iteration',it,'clean' if out.returncode==0 else 'FAILED '+out.stderr[-800:]); return out.returncode==0
        edits=collections.defaultdict(set); un=[]
        for d in msgs:
            code=(d.get('code') or {}).get('code') if d.get('code') else None
            names=re.findall(r'`([^`]*)`',d['message'])
            done=False
            for s in [s for s in d['spans'] if s['is_primary']]:
                p=os.path.join(ROOT,s['file_name'])
                if not os.path.exists(p) or '/.cargo/' in p: continue
                src=read(p); a,b=s['byte_start'],s['byte_end']
                # macro expansions: use expansion call site text if span in a macro of ours
                seg=src[a:b]
                label=s.get('label') or ''
                tgt=None
                m=re.search(r'no `(\w+)` in |could not find `(\w+)` in|use of (?:undeclared|unresolved) (?:type|module or unlinked crate|crate or module|item) `(\w+)`|no external (?:item|crate) `(\w+)`',label) or re.search(r'cannot find \w+(?: \w+)?,? .*?`(\w+)`|no [\w ,]+? named `(\w+)`|no field `(\w+)`|named `(\w+)`|method `(\w+)` is not|cannot find `(\w+)`|does not have (?:a|this) field.*`(\w+)`',d['message'])
                if m: tgt=[g for g in m.groups() if g][0]
                ids=idents(seg)
                if not ids and seg[:1]==b'"': ids=[(a1+1,b1+1,t1) for a1,b1,t1 in idents(seg[1:-1])]
                if tgt: ids=[q for q in ids if q[2].decode()==tgt]
                if len(ids)>1 and code in('E0432','E0433'): ids=ids[-1:]
                for x,y,t in ids:
                    olds=[r for r in byold.get(t.decode(),[])]
                    if not olds: continue
                    if not tgt and not any(t.decode() in re.findall(r'\w+',n) for n in names) and len(idents(seg))>1: continue
                    ks=KINDS.get(code,None)
                    cand=[r for r in olds if ks is None or r['kind'] in ks]
                    if not cand: continue
                    # mods: path rename only
                    D=deps_of(c); cand=[r for r in cand if r['crate'] in D and (r['kind'] not in('test','param'))] or [r for r in cand if r['kind']=='param' and False]
                    if not cand: continue
                    news={r['new'] for r in cand}
                    if len(news)>1:
                        same=[r for r in cand if os.path.exists(p) and now_path(r)==p]
                        if same and code not in ('E0432',): cand=same; news={r['new'] for r in cand}
                    if len(news)>1 and code=='E0425':
                        toksf={q[2] for q in idents(src)}
                        c5=[r for r in cand if r['new'].encode() in toksf]
                        if c5 and len({r['new'] for r in c5})==1: cand=c5; news={r['new'] for r in cand}
                        else:
                            par=os.path.dirname(p)+'.rs'; par2=os.path.join(os.path.dirname(p),'lib.rs')
                            c6=[r for r in cand if now_path(r) in(par,par2)]
                            if c6: cand=c6; news={r['new'] for r in cand}
                    if len(news)>1:
                        mods=set(re.findall(r'\w+',' '.join(names)+' '+label))
                        c4=[r for r in cand if os.path.basename(r['file'])[:-3] in mods or os.path.basename(now_path(r))[:-3] in mods]
                        if c4: cand=c4; news={r['new'] for r in cand}
                    if len(news)>1:
                        line=src[src.rfind(b'\n',0,a)+1:src.find(b'\n',b)].decode(errors='replace')
                        c3=[r for r in cand if re.search(r'\b'+r['crate'].replace('-','_')+r'::',line)]
                        if c3: cand=c3; news={r['new'] for r in cand}
                    if len(news)>1:
                        txt=d['message']+' '.join((l.get('label') or '') for l in d['spans'])
                        words=set(re.findall(r'\w+',txt))
                        def hit(r):
                            o=r['owner'].split('::')[0]
                            on={o}|{q['new'] for q in byold.get(o,[])}
                            return bool(on & words)
                        c2=[r for r in cand if hit(r)]
                        if c2: cand=c2
                        news={r['new'] for r in cand}
                    if len(news)>1:
                        c2=[r for r in cand if r['crate']==c]
                        if c2: cand=c2; news={r['new'] for r in cand}
                    if len(news)!=1: continue
                    new=list(news)[0]; kind=cand[0]['kind']
                    if '/' in new: new=new.split('/')[-1]
                    A,B=a+x,a+y
                    if kind=='field' and code in('E0560','E0559','E0026'):
                        # shorthand?
                        rest=src[B:B+200].lstrip(); 
                        if not rest.startswith(b':') and rest[:1] in(b',',b'}') :
                            blk=block_of(src,[q for q in tokens(src) if not q[2].isspace() and not q[2].startswith(b'//')],A)
                            if blk:
                                sig=[q for q in tokens(src) if not q[2].isspace() and not q[2].startswith(b'//')]
                                for j,q in enumerate(sig):
                                    if q[0]<blk[0] or q[1]>blk[1] or q[2]!=t: continue
                                    if sig[j-1][2]==b'.' and sig[j-2][2]!=b'.': continue
                                    nx=sig[j+1][2]
                                    if nx in(b'(',b'!'): continue
                                    if nx==b':' and sig[j+2][2]==b':': continue
                                    edits[p].add((q[0],q[1],new))
                                done=True; continue
                    edits[p].add((A,B,new)); done=True
            if not done: un.append(d)
        n=sum(len(v) for v in edits.values())
        print(f'{c} it {it}: {len(msgs)} errors, {n} edits, {len(un)} unresolved',flush=True)
        if n==0:
            for d in un[:40]:
                s=[s for s in d['spans'] if s['is_primary']][:1]
                print('   UNRESOLVED',(d.get('code') or {}).get('code') if d.get('code') else '',d['message'][:200],s and f"{s[0]['file_name']}:{s[0]['line_start']}")
            return False
        for p,es in edits.items():
            src=read(p)
            for a,b,new in sorted(es,reverse=True): src=sub_span(src,a,b,new.encode())
            write(p,src)
    return False
if __name__=='__main__':
    for c in CRATES:
        if MODE!='--check-only':
            rename_defs(c); rename_params(c); rename_mods(c)
        if MODE!='--defs-only': guided(c)
